//! Tests of the states that a crash can leave.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::sync::Arc;

use proptest::prelude::*;

use super::committer::{CommittedGroup, Committer};
use super::segment::{self, Position};
use super::space::Space;
use super::*;

/// Records that are lines of text.
pub(crate) struct TextLines;

impl Format for TextLines {
    type Entry = String;
    type Record = String;

    fn encode(entry: &String, bytes: &mut Vec<u8>) -> io::Result<()> {
        bytes.extend_from_slice(entry.as_bytes());
        bytes.push(b'\n');
        Ok(())
    }

    fn decode(bytes: &[u8]) -> Result<(String, &[u8]), String> {
        let end = bytes.iter().position(|byte| *byte == b'\n').ok_or("a line without an end")?;
        let (line, rest) = bytes.split_at(end);
        let line = std::str::from_utf8(line).map_err(|error| error.to_string())?;
        Ok((line.to_owned(), rest.get(1..).unwrap_or_default()))
    }
}

/// Reads a journal to its end; with the number of bytes of an unfinished write.
fn read(dir: &Path) -> Result<(Vec<String>, u64), Error> {
    let mut reader = Reader::<TextLines>::open(dir, Position::default())?;
    let mut records = Vec::new();
    while let Some(frame) = reader.next_frame()? {
        assert_eq!(frame.first_seq, records.len() as Seq + 1, "numbers are without gaps");
        records.extend(frame.records);
    }
    Ok((records, reader.torn_bytes()))
}

/// End of a journal.
fn end(dir: &Path) -> Position {
    let mut reader = Reader::<TextLines>::open(dir, Position::default()).expect("a journal");
    while reader.next_frame().expect("a sound journal").is_some() {}
    reader.position()
}

fn append(writer: &mut Writer<TextLines>, group: &[String]) {
    let end = writer.write(group).expect("written");
    writer.flush(end).expect("flushed");
}

/// The last segment of a journal, and what is in it.
fn last_segment(dir: &Path) -> (std::path::PathBuf, Vec<u8>) {
    let last = *segment::list(dir).expect("segments").last().expect("a segment");
    let path = segment::path(dir, last);
    let bytes = fs::read(&path).expect("a segment");
    (path, bytes)
}

fn lines(lines: &[&str]) -> Vec<String> {
    lines.iter().map(|line| (*line).to_owned()).collect()
}

#[test]
fn a_crash_at_any_byte_of_a_group_takes_this_group_and_nothing_else() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut writer = Writer::<TextLines>::open(dir.path(), Position::default()).expect("a writer");
    append(&mut writer, &lines(&["one", "two"]));
    let before = writer.position();
    append(&mut writer, &lines(&["three", "four", "five"]));
    drop(writer);
    let (path, whole) = last_segment(dir.path());
    let from = usize::try_from(before.offset).expect("a small file");
    for cut in from..whole.len() {
        fs::write(&path, &whole[..cut]).expect("cut");
        let (records, torn) = read(dir.path()).expect("an unfinished write is no damage");
        assert_eq!(records, ["one", "two"], "cut at {cut}");
        assert_eq!(torn, (cut - from) as u64, "cut at {cut}");
        // Whoever goes on does so behind the last whole group.
        let mut writer = Writer::<TextLines>::open(dir.path(), end(dir.path())).expect("a writer");
        append(&mut writer, &lines(&["another"]));
        assert_eq!(read(dir.path()).expect("sound").0, ["one", "two", "another"], "cut at {cut}");
    }
    // A byte that was changed is damage where another group follows, and never read as a record.
    fs::write(&path, &whole).expect("whole again");
    for at in segment_content(&whole) {
        let mut changed = whole.clone();
        changed[at] ^= 0x40;
        fs::write(&path, &changed).expect("changed");
        match read(dir.path()) {
            Ok((records, _)) => panic!("byte {at}: {records:?} was read"),
            Err(Error::Damaged { .. }) => {}
            Err(error) => panic!("byte {at}: {error}"),
        }
    }
}

/// The places of the frames in a segment.
fn segment_content(whole: &[u8]) -> std::ops::Range<usize> {
    frame::SEGMENT_HEADER_BYTES..whole.len()
}

#[test]
fn a_sector_that_never_arrived_is_an_unfinished_write() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut writer = Writer::<TextLines>::open(dir.path(), Position::default()).expect("a writer");
    append(&mut writer, &lines(&["one"]));
    append(&mut writer, &["x".repeat(3000)]);
    drop(writer);
    let (path, whole) = last_segment(dir.path());
    for sector in 1..whole.len() / 512 {
        let mut torn = whole.clone();
        torn[sector * 512..(sector + 1) * 512].fill(0);
        fs::write(&path, &torn).expect("torn");
        let (records, bytes) = read(dir.path()).expect("no damage");
        assert_eq!(records, ["one"], "without sector {sector}");
        assert!(bytes > 3000, "{bytes} bytes are cut");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    /// Whatever is written in whatever groups and segments is read as it was, and a crash at any byte
    /// leaves a beginning of it that ends with a group.
    #[test]
    fn any_groups_are_read_again_up_to_a_crash(
        groups in prop::collection::vec(prop::collection::vec("[ -~]{0,40}", 1..5), 1..20),
        segment_bytes in 1_u64..600,
        cut in any::<prop::sample::Index>(),
    ) {
        let dir = tempfile::tempdir().expect("a directory");
        let writer = Writer::<TextLines>::open(dir.path(), Position::default()).expect("a writer");
        let mut writer = writer.with_segments(segment_bytes);
        for group in &groups {
            append(&mut writer, group);
        }
        let whole: Vec<String> = groups.concat();
        prop_assert_eq!(read(dir.path()).expect("sound"), (whole.clone(), 0));
        let all = Records::<TextLines>::open(dir.path(), 0, None).expect("a journal");
        let all: Vec<_> = all.map(|record| record.expect("a record")).collect();
        prop_assert_eq!(all, (1..).zip(whole.clone()).collect::<Vec<_>>());
        // The crash.
        let (path, bytes) = last_segment(dir.path());
        let length = cut.index(bytes.len() + 1) as u64;
        OpenOptions::new().write(true).open(&path).expect("open").set_len(length).expect("cut");
        let (left, _) = read(dir.path()).expect("what a crash leaves is no damage");
        prop_assert!(whole.starts_with(&left));
        let mut ends = groups.iter().scan(0, |at, group| {
            *at += group.len();
            Some(*at)
        });
        prop_assert!(left.is_empty() || ends.any(|end| end == left.len()), "a group was split");
    }

    /// Bytes that nobody wrote are refused or read as an end, and nothing panics.
    #[test]
    fn any_bytes_behind_a_journal_are_no_record(garbage in prop::collection::vec(any::<u8>(), 1..400)) {
        let dir = tempfile::tempdir().expect("a directory");
        let mut writer = Writer::<TextLines>::open(dir.path(), Position::default()).expect("a writer");
        append(&mut writer, &lines(&["one"]));
        let (path, bytes) = last_segment(dir.path());
        let file = OpenOptions::new().write(true).open(path).expect("open");
        file.write_all_at(&garbage, bytes.len() as u64).expect("written");
        if let Ok((records, torn)) = read(dir.path()) {
            prop_assert_eq!((records, torn), (lines(&["one"]), garbage.len() as u64));
        }
        let mut salvage = salvage::Salvage::<TextLines>::open(dir.path()).expect("a journal");
        let mut walk = salvage::SalvageCursor::begin(&salvage);
        let mut frames = 0;
        while let Some(found) = salvage.next(&mut walk).expect("readable") {
            frames += usize::from(matches!(found, salvage::SalvageItem::Frame(..)));
        }
        prop_assert_eq!(frames, 1);
    }
}

/// Starts a committer; the second part is how many groups it has written when it ends.
fn start(dir: &Path) -> (Arc<Journal<String>>, std::thread::JoinHandle<(Position, usize)>) {
    let journal = Arc::new(Journal::new(0));
    let (of_thread, dir) = (Arc::clone(&journal), dir.to_owned());
    let thread = std::thread::spawn(move || {
        let mut groups = 0;
        let writer = Writer::<TextLines>::open(&dir, Position::default()).expect("a writer");
        let writer = writer.with_segments(4096);
        let count = |_: CommittedGroup<'_, String>| groups += 1;
        let committer = Committer::new(of_thread, writer, Space::new(dir, 0), count, |_| {});
        let end = committer.run().expect("the disk takes it");
        (end, groups)
    });
    (journal, thread)
}

/// Copies the segments of a journal that is being written, as a crash would leave them.
fn copy(from: &Path, to: &Path) {
    for first_seq in segment::list_here(from).expect("segments") {
        let bytes = fs::read(segment::path(from, first_seq)).expect("a segment");
        File::create(segment::path(to, first_seq))
            .and_then(|mut f| f.write_all(&bytes))
            .expect("a copy");
    }
}

#[test]
fn what_was_acknowledged_is_read_again_at_whatever_moment_the_process_dies() {
    let dir = tempfile::tempdir().expect("a directory");
    let (journal, thread) = start(dir.path());
    let acknowledged = std::sync::atomic::AtomicU64::new(0);
    std::thread::scope(|scope| {
        let writers: Vec<_> = (0..4)
            .map(|writer| {
                let (journal, acknowledged) = (&journal, &acknowledged);
                scope.spawn(move || {
                    let runtime = tokio::runtime::Builder::new_current_thread().build();
                    runtime.expect("a runtime").block_on(async {
                        for number in 0..200 {
                            let entry = |seq| format!("{seq} of writer {writer}: {number}");
                            let seq = journal.enqueue(Urgency::AtOnce, entry).expect("it is open");
                            journal.durable(seq).await.expect("it goes on");
                            acknowledged.fetch_max(seq, std::sync::atomic::Ordering::SeqCst);
                        }
                    });
                })
            })
            .collect();
        while writers.iter().any(|writer| !writer.is_finished()) {
            let at_least = acknowledged.load(std::sync::atomic::Ordering::SeqCst);
            let copied = tempfile::tempdir().expect("a directory");
            copy(dir.path(), copied.path());
            let (records, _) = read(copied.path()).expect("what a crash leaves is no damage");
            assert!(records.len() as Seq >= at_least, "{at_least} were acknowledged");
        }
    });
    journal.stop();
    assert_eq!(journal.enqueue(Urgency::AtOnce, |seq| seq.to_string()), Err(JournalStopped));
    let (end, groups) = thread.join().expect("no panic");
    let (records, _) = read(dir.path()).expect("sound");
    assert_eq!((records.len(), end.seq), (800, 800));
    for (seq, record) in (1..).zip(&records) {
        assert!(record.starts_with(&format!("{seq} of ")), "{record} has another number");
    }
    assert!((1..=800).contains(&groups), "each group was one flush: {groups}");
}

#[test]
fn what_nobody_waits_for_reaches_the_disk_by_itself_and_with_the_next_that_is_urgent() {
    let dir = tempfile::tempdir().expect("a directory");
    let (journal, thread) = start(dir.path());
    let alone = journal.enqueue(Urgency::Gather, |seq| seq.to_string()).expect("it is open");
    while !journal.is_durable(alone) {
        std::thread::yield_now();
    }
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    let gathers = journal.enqueue(Urgency::Gather, |seq| seq.to_string()).expect("it is open");
    let urgent = journal.enqueue(Urgency::AtOnce, |seq| seq.to_string()).expect("it is open");
    runtime.block_on(journal.durable(urgent)).expect("it goes on");
    assert!(journal.is_durable(gathers));
    let demanded = journal.enqueue(Urgency::Gather, |seq| seq.to_string()).expect("it is open");
    runtime.block_on(journal.durable(demanded)).expect("it goes on");
    // A thread that looks at its queue just then is woken by nobody.
    let wakes = journal.wakes();
    assert!(wakes <= 3, "one for the first, and one for each in a hurry: {wakes}");
    journal.stop();
    thread.join().expect("no panic");
    assert_eq!(read(dir.path()).expect("sound").0, ["1", "2", "3", "4"]);
}

#[test]
fn records_that_belong_together_are_one_group() {
    let dir = tempfile::tempdir().expect("a directory");
    let (journal, thread) = start(dir.path());
    let atomic_group = journal.atomic_group().expect("it is open");
    for number in 0..50 {
        journal.enqueue(Urgency::AtOnce, |_| number.to_string()).expect("it is open");
        if number % 10 == 0 {
            std::thread::sleep(std::time::Duration::from_millis(3));
        }
    }
    drop(atomic_group);
    journal.stop();
    assert_eq!(thread.join().expect("no panic").1, 1, "one group");
    assert_eq!(read(dir.path()).expect("sound").0.len(), 50);
}

#[test]
fn a_changed_or_missing_sealed_segment_is_noticed() {
    let dir = tempfile::tempdir().expect("a directory");
    let dir = dir.path();
    let mut writer =
        Writer::<TextLines>::open(dir, Position::default()).expect("a writer").with_segments(1);
    append(&mut writer, &lines(&["one"]));
    append(&mut writer, &lines(&["two"]));
    let chain_before = seal::chain_before(dir, 2).expect("a header");
    let next = sealing::SegmentStart { first_seq: 2, chain_before };
    let mut seen = 0;
    let sealed =
        sealing::SealedSegment::read::<TextLines>(dir, 1, next, |_| seen += 1).expect("sound");
    let seal = sealed.with(EmptyNote {});
    seal.keep(dir).expect("written");
    assert_eq!((seen, seal.last_seq), (1, 1));
    assert_eq!(<seal::Seal>::find(dir, 1).expect("readable"), Some(seal.clone()));
    seal.check::<TextLines>(dir).expect("the same file");
    let path = segment::path(dir, 1);
    let whole = fs::read(&path).expect("a segment");
    fs::write(&path, [whole.as_slice(), b"more"].concat()).expect("changed");
    assert!(seal.check::<TextLines>(dir).is_err(), "it is longer");
    assert!(seal.check_length(dir).is_err(), "it is longer");
    fs::remove_file(&path).expect("removed");
    assert!(matches!(read(dir), Err(Error::Damaged { .. })), "it is gone");
    // In its archive it is read as if it were here.
    let archived = dir.join("elsewhere");
    fs::write(&archived, &whole).expect("written");
    let at = seal::ArchivedSegment { path: archived, bytes: whole.len() as u64, at_ms: 0 };
    seal.moved_to(at).keep(dir).expect("written");
    assert_eq!(read(dir).expect("sound").0, ["one", "two"]);
}

#[test]
fn a_journal_that_ends_before_its_head_is_refused() {
    let dir = tempfile::tempdir().expect("a directory");
    let journal = dir.path().join(JOURNAL_DIR);
    fs::create_dir(&journal).expect("a directory");
    let mut writer = Writer::<TextLines>::open(&journal, Position::default()).expect("a writer");
    append(&mut writer, &lines(&["one"]));
    let before = writer.position();
    append(&mut writer, &lines(&["two"]));
    let examine = || {
        head::JournalHead::<EmptyNote>::examine::<TextLines>(dir.path(), head::ForkPolicy::Refused)
    };
    assert_eq!(examine().expect("nothing is noted"), None);
    let file = head::HeadFile::begin::<TextLines>(
        dir.path(),
        None::<head::JournalHead>,
        writer.position(),
    );
    let noted = file.expect("written").now();
    assert_eq!(examine().expect("it is as it was").map(|head| head.seq), Some(2));
    Writer::<TextLines>::open(&journal, before).expect("cuts what is behind");
    let refused = examine().expect_err("it lacks a record");
    assert!(matches!(refused, Error::Behind { end: 1, expected: 2 }), "{refused}");
    // Another record in its place is another history.
    let mut writer = Writer::<TextLines>::open(&journal, before).expect("a writer");
    append(&mut writer, &lines(&["2nd"]));
    assert_eq!(writer.position().offset, noted.offset);
    let refused = examine().expect_err("it is another record");
    assert!(matches!(refused, Error::Forked { .. }), "{refused}");
}

/// Behind each frame, however long it is and whatever its records say, the chain is that of the writer;
/// within a frame there is none.
#[test]
fn the_chain_at_a_place_is_found_from_behind() {
    let seed = fastrand::u64(..);
    println!("seed {seed}");
    let mut random = fastrand::Rng::with_seed(seed);
    let dir = tempfile::tempdir().expect("a directory");
    let mut writer = Writer::<TextLines>::open(dir.path(), Position::default()).expect("a writer");
    append(&mut writer, &lines(&["the first record names the segment"]));
    let mut places = vec![writer.position()];
    for length in [1, 400, 70_000, 300_000, 600_000, 9] {
        // Longer than what is looked at first, and with the beginning of a frame in it.
        let text: String = (0..length).map(|_| random.alphanumeric()).collect();
        append(&mut writer, &[text, "TGfr".to_owned()]);
        places.push(writer.position());
    }
    let (path, _) = last_segment(dir.path());
    let file = fs::File::open(path).expect("the segment");
    for place in &places {
        let found = segment::chain_at(&file, place.offset).expect("readable");
        assert_eq!(found, Some(place.chain), "at {}", place.offset);
        for away in [1, 2, random.u64(3..40)] {
            let found = segment::chain_at(&file, place.offset - away).expect("readable");
            assert_eq!(found, None, "{away} before {}", place.offset);
        }
    }
}

/// A writer that begins a segment with each group.
fn small_segments(dir: &Path, end: Position) -> Writer<TextLines> {
    Writer::open(dir, end).expect("a writer").with_segments(1)
}

fn files(dir: &Path) -> Vec<String> {
    let mut names: Vec<_> = fs::read_dir(dir)
        .expect("the directory")
        .map(|entry| entry.expect("an entry").file_name().into_string().expect("text"))
        .collect();
    names.sort();
    names
}

#[test]
fn the_next_segment_is_there_before_it_is_needed_and_a_crash_leaves_nothing_of_it() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut first = small_segments(dir.path(), Position::default());
    append(&mut first, &lines(&["a record"]));
    first.open_ahead();
    assert_eq!(files(dir.path()), ["0000000000000001.seg", "next"]);
    append(&mut first, &lines(&["a record"]));
    assert_eq!(files(dir.path()), ["0000000000000001.seg", "0000000000000002.seg"]);
    first.open_ahead();
    let end = first.position();
    // What a crash leaves: a header without a name.
    fs::write(dir.path().join("next"), b"half a head").expect("written");
    drop(first);
    let mut second = small_segments(dir.path(), end);
    append(&mut second, &lines(&["a record"]));
    let mut reader = Reader::<TextLines>::open(dir.path(), Position::default()).expect("a reader");
    let mut frames = 0;
    while reader.next_frame().expect("a sound journal").is_some() {
        frames += 1;
    }
    assert_eq!((frames, reader.torn_bytes()), (3, 0), "frames, and bytes that are cut");
    assert_eq!(segment::list(dir.path()).expect("segments"), [1, 2, 3]);
}
