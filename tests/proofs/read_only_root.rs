//! The gateway where it may write nowhere but to its data.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::process::{Command, Stdio};

/// Script of the container's user on a read-only root with one writable directory.
const READ_ONLY_ROOT: &str = r#"
set -e
mount --make-rprivate /
mount --bind "$DATA" "$DATA"
mount -o remount,bind,ro /
cd "$DATA"
if touch "$BINARY.x" 2>/dev/null; then echo "the root can be written to"; exit 1; fi
exec timeout --preserve-status -s TERM 20 setpriv --reuid 10001 --regid 10001 --clear-groups \
    "$BINARY" demo --json --listen 127.0.0.1:0 --admin 127.0.0.1:0 --data "$DATA/ledger"
"#;

#[test]
#[ignore = "remounts the root in a namespace of its own, which needs root"]
fn the_gateway_needs_no_root_and_writes_nowhere_but_to_its_data() {
    let directory = tempfile::tempdir().expect("a directory");
    let (binary, data) = (directory.path().join("tollgate"), directory.path().join("data"));
    fs::copy(env!("CARGO_BIN_EXE_tollgate"), &binary).expect("copied");
    fs::create_dir(&data).expect("a directory");
    let open = fs::Permissions::from_mode(0o755);
    fs::set_permissions(directory.path(), open).expect("others may enter");
    chown(&data, Some(10_001), Some(10_001)).expect("root gives it away");
    let mut child = Command::new("unshare")
        .args(["--mount", "bash", "-c", READ_ONLY_ROOT])
        .env("BINARY", &binary)
        .env("DATA", &data)
        .stdout(Stdio::piped())
        .spawn()
        .expect("unshare runs");
    let mut line = String::new();
    let stdout = child.stdout.take().expect("standard output is piped");
    BufReader::new(stdout).read_line(&mut line).expect("a line when it is ready");
    let ready: serde_json::Value = serde_json::from_str(&line).unwrap_or_default();
    assert!(ready["base_url"].is_string(), "not ready: {line}");
    let sent = Command::new("kill").arg(child.id().to_string()).status();
    assert!(sent.is_ok_and(|status| status.success()), "SIGTERM is sent");
    let ended = child.wait().expect("it ends");
    assert!(ended.success(), "a drain ends with 0: {ended:?}");
    assert!(data.join("ledger/journal").exists(), "the ledger is where it was told to be");
}
