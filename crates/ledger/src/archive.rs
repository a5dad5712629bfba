//! The archive: where closed segments go that no start needs. A directory, or a bucket of an object
//! store that speaks S3.
//!
//! The seal of a segment says where it is now, as a path: that of a file, or `s3://bucket/key`. How a
//! bucket is reached, and with what keys, is told to the process once, by [`connect`]: whoever
//! reads the journal reads through seals, and knows nothing of configurations.

mod bucket;
mod near;
mod transfer;

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{self, BufReader, BufWriter, Cursor, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use parking_lot::RwLock;

use self::bucket::ArchiveBucket;
use crate::files::directory::{make_directory, sync_directory};
use crate::files::seal::{self, ArchivedSegment, Seal};
use crate::records::error::OpenError;
use tollgate_journal::segment;
pub use tollgate_options::archive::{Archive, ArchiveTo, BucketOptions};
use tollgate_types::clock::UnixMs;

/// zstd compression level of archived segments: the fastest one for the size it reaches.
const ZSTD_LEVEL: i32 = 3;
const BUFFER_BYTES: usize = 256 << 10;
/// URL scheme of objects in a bucket.
const SCHEME: &str = "s3://";

/// The buckets that this process can reach. There is one in a gateway or a command; tests have several.
static BUCKETS: RwLock<Vec<Arc<ArchiveBucket>>> = RwLock::new(Vec::new());

/// Connects this process to the archive for reading. Sends nothing.
///
/// # Errors
/// When the place cannot be one.
pub fn connect(archive: &Archive) -> Result<(), OpenError> {
    let ArchiveTo::Bucket(options) = &archive.to else { return Ok(()) };
    let made = ArchiveBucket::new((**options).clone());
    let made = made.map_err(|what| OpenError::io(place(options, ""))(io::Error::other(what)))?;
    let mut existing = BUCKETS.write();
    existing.retain(|bucket| bucket.options.bucket != options.bucket);
    existing.push(Arc::new(made));
    Ok(())
}

/// Prepares the ledger in `dir`, which is about to be opened, to read and write its archive.
///
/// # Errors
/// As [`connect`].
pub(super) fn begin(dir: &Path, archive: Option<&Archive>) -> Result<(), OpenError> {
    near::clear(dir);
    archive.map_or(Ok(()), connect)
}

/// The buckets that the journal in the data directory `dir` has segments in: who reads them needs
/// [`connect`].
///
/// # Errors
/// When the journal's directory or a seal cannot be read.
pub fn buckets_of(dir: &Path) -> Result<BTreeSet<String>, OpenError> {
    let archived = seal::all(&dir.join("journal"))?.into_iter().filter_map(|seal| seal.archived);
    Ok(archived.filter_map(|at| Some(object(&at.path)?.0.to_owned())).collect())
}

/// The path that stands in a seal for an object.
fn place(options: &BucketOptions, key: &str) -> PathBuf {
    PathBuf::from(format!("{SCHEME}{}/{key}", options.bucket))
}

/// Bucket and key, if this is the path of an object.
fn object(path: &Path) -> Option<(&str, &str)> {
    path.to_str()?.strip_prefix(SCHEME)?.split_once('/')
}

/// The bucket in which to look for an object: the one with this name or, without one, the last configured
/// bucket, to which the objects of a removed one must have been copied.
fn bucket_called(name: &str) -> io::Result<Arc<ArchiveBucket>> {
    let existing = BUCKETS.read();
    let found = existing.iter().rfind(|bucket| bucket.options.bucket == name).or(existing.last());
    found.cloned().ok_or_else(|| {
        io::Error::other(
            "it is in a bucket, and nothing says how to reach that: `store.journal.archive.s3` of \
             routes.yaml has to; give a command this file with --routes",
        )
    })
}

/// The content of an archived segment, as it comes. For a reader who may come back, `journal_dir` is the
/// journal's directory: what was fetched of a bucket stays for a while beside it.
///
/// # Errors
/// When it is not there, cannot be reached, or is no such file.
pub(crate) fn open(
    archived: &ArchivedSegment,
    journal_dir: Option<&Path>,
) -> io::Result<Box<dyn Read>> {
    match journal_dir.zip(object(&archived.path)) {
        Some((journal_dir, (_, key))) => {
            let fetch = || packed(archived, None);
            unpack(near::open(journal_dir, key, archived, fetch)?)
        }
        None => unpack(packed(archived, None)?),
    }
}

fn unpack(packed: Box<dyn Read>) -> io::Result<Box<dyn Read>> {
    let decoder = zstd::Decoder::new(packed)?;
    Ok(Box::new(BufReader::with_capacity(BUFFER_BYTES, decoder)))
}

fn packed(archived: &ArchivedSegment, stop: Option<&Arc<AtomicBool>>) -> io::Result<Box<dyn Read>> {
    match object(&archived.path) {
        Some((name, key)) => {
            Ok(Box::new(bucket_called(name)?.get(key, Some(archived.bytes), stop)?))
        }
        None => Ok(Box::new(File::open(&archived.path)?)),
    }
}

/// Copies the segment of `seal` to the archive and reads it back; returns the location of the verified copy.
/// `id` is the ledger's name. Stops early when `stop` is set.
///
/// # Errors
/// When something cannot be written or read, or is not what was sealed.
fn keep(
    to: &ArchiveTo,
    seal: &Seal,
    dir: &Path,
    id: &str,
    stop: &Arc<AtomicBool>,
) -> Result<ArchivedSegment, OpenError> {
    match to {
        ArchiveTo::Directory(archive) => in_directory(seal, dir, &archive.join(id)),
        ArchiveTo::Bucket(options) => in_bucket(seal, dir, options, id, stop),
    }
}

/// Moves the segment that `seal` is about into an archive: has a copy made there and read back, notes the
/// place in the seal, and only then removes the original. `id` is the ledger's name; it is broken off
/// when `stop` is set.
///
/// # Errors
/// When something cannot be written or read, or is not what was sealed: the original stays then.
pub(crate) fn move_segment(
    seal: &Seal,
    dir: &Path,
    id: &str,
    to: &ArchiveTo,
    stop: &Arc<AtomicBool>,
) -> Result<ArchivedSegment, OpenError> {
    let archived = keep(to, seal, dir, id, stop)?;
    seal.move_to(dir, archived.clone())?;
    Ok(archived)
}

/// The copy has its name when it is whole: a crash before leaves one that is written again.
fn in_directory(seal: &Seal, dir: &Path, archive: &Path) -> Result<ArchivedSegment, OpenError> {
    let name = format!("{:016x}.seg.zst", seal.first_seq);
    let (to, new) = (archive.join(&name), archive.join(format!("{name}.new")));
    make_directory(archive).map_err(OpenError::io(archive))?;
    // One that cannot be read says nothing.
    if let Ok(Some(existing)) = Seal::find(archive, seal.first_seq) {
        check_is_same(&existing, seal, &to)?;
    }
    let bytes = pack(&segment::path(dir, seal.first_seq), &new).inspect_err(|_| {
        // Half a file on a full disk is room that others wait for.
        drop(fs::remove_file(&new));
    });
    let bytes = bytes.map_err(OpenError::io(&new))?;
    let written = ArchivedSegment { path: new.clone(), bytes, at_ms: UnixMs::now().0 };
    check(seal, &written, None)?;
    let archived = ArchivedSegment { path: to.clone(), ..written };
    // What the archive says of itself, for those who have nothing else.
    seal.clone().moved_to(archived.clone()).keep(archive)?;
    // Renamed last, and synchronised before the original is removed: the archive never has a partial
    // segment under its name, and the segment is always in at least one place.
    let renamed = fs::rename(&new, &to).and_then(|()| sync_directory(archive));
    renamed.map_err(OpenError::io(&to))?;
    Ok(archived)
}

/// The seal goes first: it is small, so that a store that refuses can say so before much was sent.
fn in_bucket(
    seal: &Seal,
    dir: &Path,
    options: &BucketOptions,
    id: &str,
    stop: &Arc<AtomicBool>,
) -> Result<ArchivedSegment, OpenError> {
    let bucket = bucket_called(&options.bucket).map_err(OpenError::io(place(options, "")))?;
    let key = |end| options.key(&format!("{id}/{:016x}.{end}", seal.first_seq));
    let from = segment::path(dir, seal.first_seq);
    let open = || compressed(&from);
    let path = place(options, &key("seg.zst"));
    if let Some(existing) = find_seal_object(&bucket, &key("seal"), stop)
        .map_err(OpenError::io(place(options, &key("seal"))))?
    {
        check_is_same(&existing, seal, &path)?;
    }
    // Packed twice, once to know its length and its checksum: nothing is written to a disk that may be
    // full, and no more of it is in memory than a piece.
    let sum = transfer::Sum::of(open().map_err(OpenError::io(&from))?, stop);
    let sum = sum.map_err(OpenError::io(&from))?;
    let archived = ArchivedSegment { path: path.clone(), bytes: sum.bytes, at_ms: UnixMs::now().0 };
    let says = tollgate_journal::checked::content(&seal.clone().moved_to(archived.clone()));
    let says = says.map_err(OpenError::io(&path))?;
    let of_seal = transfer::Sum::of(Cursor::new(&says), stop).map_err(OpenError::io(&path))?;
    let sent = bucket.put(&key("seal"), &of_seal, Box::new(Cursor::new(says)), stop);
    sent.map_err(OpenError::io(place(options, &key("seal"))))?;
    let body = Box::new(open().map_err(OpenError::io(&from))?);
    bucket.put(&key("seg.zst"), &sum, body, stop).map_err(OpenError::io(&path))?;
    check(seal, &archived, Some(stop))?;
    Ok(archived)
}

/// Reads a segment's seal object. `None` if it is absent, unparseable, or hidden: for keys without
/// `ListBucket` an absent object gives a 403.
fn find_seal_object(
    bucket: &ArchiveBucket,
    key: &str,
    stop: &Arc<AtomicBool>,
) -> io::Result<Option<Seal>> {
    let mut says = Vec::new();
    let read = bucket.get(key, None, Some(stop)).and_then(|mut from| from.read_to_end(&mut says));
    match read {
        Ok(_) => Ok(tollgate_journal::checked::parse(&says).ok()),
        Err(error) => match error.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::PermissionDenied => Ok(None),
            _ => Err(error),
        },
    }
}

/// Checks that the archive holds no other segment under the same number. If it does, two gateways
/// continue the same ledger, and neither may overwrite the other's files.
fn check_is_same(existing: &Seal, seal: &Seal, path: &Path) -> Result<(), OpenError> {
    if existing.sha256 == seal.sha256 {
        return Ok(());
    }
    let says = "another gateway has put other records of this ledger there: two go on from one copy, such \
                as a snapshot of a disk. Nothing is overwritten; stop one of them, see \
                docs/recovery.md#this-directory-is-a-copy-or-was-restored-from-one";
    Err(OpenError::io(path)(io::Error::new(io::ErrorKind::AlreadyExists, says)))
}

/// Reads a copy back and compares it with what was sealed.
fn check(
    seal: &Seal,
    archived: &ArchivedSegment,
    stop: Option<&Arc<AtomicBool>>,
) -> Result<(), OpenError> {
    let path = &archived.path;
    let read = packed(archived, stop).and_then(unpack).and_then(|input| seal.is_content(input));
    if read.map_err(OpenError::io(path))? {
        return Ok(());
    }
    let what = "what was read back is not what was sealed; the segment stays where it was";
    Err(OpenError::Damaged { path: path.clone(), offset: 0, what: what.to_owned() })
}

/// The compressed content of a file, with a checksum of its own, as it comes.
fn compressed(from: &Path) -> io::Result<impl Read + Send + use<>> {
    let input = BufReader::with_capacity(BUFFER_BYTES, File::open(from)?);
    let mut encoder = zstd::stream::read::Encoder::with_buffer(input, ZSTD_LEVEL)?;
    encoder.include_checksum(true)?;
    Ok(encoder)
}

/// Writes a file compressed, and gives its length. On disk when this returns.
fn pack(from: &Path, to: &Path) -> io::Result<u64> {
    let mut input = compressed(from)?;
    let mut output = BufWriter::with_capacity(BUFFER_BYTES, File::create(to)?);
    io::copy(&mut input, &mut output)?;
    let file = output.into_inner().map_err(io::IntoInnerError::into_error)?;
    file.sync_all()?;
    Ok(file.metadata()?.len())
}
