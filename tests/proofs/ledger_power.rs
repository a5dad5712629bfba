//! A disk that loses power under the ledger. Mounts a file system, which only root may do.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use tempfile::TempDir;
use tollgate::ledger::{Ledger, Options, verify};
use tollgate::money::Nanousd;

use crate::harness::ledger::{only_segment, runtime};

/// A disk of its own whose power can be cut.
struct Disk {
    place: TempDir,
    power_cuts: u32,
}

impl Disk {
    fn new() -> Self {
        let disk = Self { place: TempDir::new().expect("a directory"), power_cuts: 0 };
        let image = disk.image();
        fs::File::create(&image).and_then(|file| file.set_len(256 << 20)).expect("an image");
        run(Command::new("mkfs.ext4").arg("-q").arg(&image));
        fs::create_dir(disk.mounted()).expect("made");
        disk.mount();
        disk
    }

    fn mounted(&self) -> PathBuf {
        self.place.path().join("mounted")
    }

    fn image(&self) -> PathBuf {
        self.place.path().join(format!("image-{}", self.power_cuts))
    }

    fn mount(&self) {
        run(Command::new("mount")
            .args(["-o", "loop,commit=300"])
            .arg(self.image())
            .arg(self.mounted()));
    }

    /// Removes everything that was not flushed, including the file system's log. The rest is mounted from a
    /// copy: a mount namespace that another test has just created keeps the stopped file system alive, and a
    /// second mount of the same image would return it.
    fn cut_power(&mut self) {
        let shut_down = "import fcntl, os, struct, sys; \
                         fcntl.ioctl(os.open(sys.argv[1], 0), 0x8004587d, struct.pack('I', 2))";
        run(Command::new("python3").args(["-c", shut_down]).arg(self.mounted()));
        run(Command::new("umount").arg(self.mounted()));
        let left = self.image();
        self.power_cuts += 1;
        run(Command::new("cp").arg("--sparse=always").arg(left).arg(self.image()));
        self.mount();
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        drop(Command::new("umount").arg(self.mounted()).status());
    }
}

fn run(command: &mut Command) {
    let status = command.status().expect("it runs");
    assert!(status.success(), "{command:?}: this test needs root");
}

/// Data that a killed process has written and not flushed is in the kernel's memory only. A start or `ledger
/// verify` must not let sled store what the journal may lose.
#[test]
#[ignore = "mounts a file system and cuts its power, which needs root"]
fn sled_has_nothing_that_a_power_cut_takes_from_the_journal() {
    let mut disk = Disk::new();
    let (dir, kept) = (disk.mounted().join("data"), disk.mounted().join("kept"));
    let grants = |ids: std::ops::Range<u32>| {
        let (ledger, _) = Ledger::open(Options::new(&dir)).expect("opens");
        runtime().block_on(async {
            let account = match ledger.accounts().first() {
                Some(account) => account.id,
                None => ledger.create_account("one").await.expect("an account").id,
            };
            for id in ids {
                let id = id.to_string();
                ledger.grant(account, &id, Nanousd::new(1)).await.expect("a grant");
            }
        });
        ledger.close();
    };
    grants(0..5);
    run(Command::new("cp").arg("-a").arg(&dir).arg(&kept));
    let segment = only_segment(&dir);
    let before = fs::read(&segment).expect("readable");
    grants(5..10);
    let after = fs::read(&segment).expect("readable");
    // As a process leaves it that is killed between writing and flushing.
    fs::remove_dir_all(dir.join("sled")).expect("removed");
    run(Command::new("cp").arg("-a").arg(kept.join("sled")).arg(kept.join("head.json")).arg(&dir));
    fs::write(&segment, &before).expect("written");
    run(&mut Command::new("sync"));
    let mut file = fs::OpenOptions::new().append(true).open(&segment).expect("opens");
    std::io::Write::write_all(&mut file, &after[before.len()..]).expect("written");
    drop(file);
    let report = verify(&dir).expect("reads");
    assert_eq!(report.violations, Vec::<String>::new());
    disk.cut_power();
    let (ledger, _) = Ledger::open(Options::new(&dir)).expect("it starts");
    let granted = ledger.accounts()[0].balance.granted.get();
    assert!(granted >= 5, "{granted}");
    ledger.close();
}
