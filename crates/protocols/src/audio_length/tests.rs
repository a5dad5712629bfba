use proptest::prelude::*;

use super::sample_files::*;
use super::*;

/// Begun seconds of a file.
fn seconds(file: &[u8]) -> Result<u64, AudioFault> {
    longest(file).map(|(_, length)| length.seconds())
}

fn milliseconds(file: &[u8]) -> u128 {
    longest(file).expect("audio").1.nanoseconds / 1_000_000
}

#[test]
fn true_files_are_as_long_as_they_are() {
    let wav = wav_seconds(3);
    let mp3 = mp3_frame().repeat(100);
    let opus = [&opus_heads()[..], &vec![opus_20_ms(); 50]].concat();
    for (file, container, milliseconds) in [
        (wav, AudioContainer::Wav, 3_000),
        ([id3(&[0; 500]), mp3.clone()].concat(), AudioContainer::Mpeg, 2_612),
        (mp3, AudioContainer::Mpeg, 2_612),
        (flac(16_000, 48_000, &[16_000; 3]), AudioContainer::Flac, 3_000),
        (ogg(7, 48_000, &opus), AudioContainer::Ogg, 1_000),
        (mp4(25, 1024, 1), AudioContainer::Mp4, 3_200),
        (webm(b"A_OPUS", &vec![opus_20_ms(); 50]), AudioContainer::Webm, 1_000),
    ] {
        let (found, length) = longest(&file).expect("audio");
        assert_eq!((found, length.nanoseconds / 1_000_000), (container, milliseconds));
    }
    assert_eq!(seconds(&wav_seconds(3)), Ok(3), "no second is begun");
}

#[test]
fn what_headers_claim_of_the_length_is_not_believed() {
    let hour = 3_600;
    let silence = vec![0x80; 8_000 * 3_600];
    // Each of these says that it has a second, or nothing.
    for claimed in [0, 8_000, u32::MAX] {
        assert_eq!(seconds(&wav(8_000, 1, 8, claimed, &silence)), Ok(hour), "WAV says {claimed}");
    }
    let frames = u64::from(u32::try_from(50_000).expect("small"));
    let slow = slow_mp3_frame().repeat(50_000);
    assert_eq!(seconds(&slow), Ok(frames * 72 / 1_000), "400 kilobytes a little more than an hour");
    let mut xing = slow_mp3_frame();
    xing[13..29].copy_from_slice(b"Xing\0\0\0\x03\0\0\0\x01\0\0\0\x48");
    let noted = [xing, slow].concat();
    assert_eq!(seconds(&noted), Ok(frames * 72 / 1_000 + 1), "a note of one frame");
    for claimed in [0, 1] {
        let file = flac(8_000, claimed, &vec![65_535; 440]);
        assert_eq!(seconds(&file), Ok(3_605), "FLAC says {claimed} samples");
    }
    let dtx = [&opus_heads()[..], &vec![OPUS_60_MS.to_vec(); 60_000]].concat();
    for granule in [0, 48_000, u64::MAX] {
        assert_eq!(seconds(&ogg(1, granule, &dtx)), Ok(hour), "Ogg says {granule}");
    }
    assert_eq!(seconds(&mp4(28_125, 1, 1)), Ok(hour), "MP4 says a tick for each sample");
    let webm = webm(b"A_OPUS", &vec![OPUS_60_MS.to_vec(); 60_000]);
    assert_eq!(seconds(&webm), Ok(hour), "WebM says nothing");
}

#[test]
fn streams_behind_and_beside_each_other_all_count() {
    let stream = |serial| ogg(serial, 1, &[&opus_heads()[..], &vec![opus_20_ms(); 50]].concat());
    assert_eq!(milliseconds(&[stream(1), stream(2), stream(1)].concat()), 3_000, "chained");
    assert_eq!(milliseconds(&mp4(25, 1024, 4)), 4 * 3_200, "played four times by its edits");
    let mut fragmented = mp4_box(b"ftyp", b"iso5\0\0\0\0");
    fragmented.extend(moov(0, 1, 0));
    let numbers = |all: &[u32]| all.iter().flat_map(|it| it.to_be_bytes()).collect::<Vec<u8>>();
    let run = mp4_box(b"trun", &numbers(&[0, 50]));
    let traf = mp4_box(b"traf", &[mp4_box(b"tfhd", &numbers(&[0, 1])), run].concat());
    fragmented.extend(mp4_box(b"moof", &traf));
    assert_eq!(milliseconds(&fragmented), 6_400);
    // A packet on two pages counts once.
    let heads = opus_heads();
    let mut file = ogg(1, 0, &heads);
    let long = vec![OPUS_60_MS[0]; 255];
    let mut page = ogg_page(1, 0, 0, &[long]);
    assert_eq!(page[26..29], [2, 255, 0]);
    page.truncate(0);
    page.extend(ogg_page(1, 0, 0, &[vec![OPUS_60_MS[0]; 300]]));
    file.extend(page);
    assert_eq!(milliseconds(&file), 60);
}

#[test]
fn frames_between_rubbish_count_wherever_a_decoder_looks() {
    let rubbish = [0, 0xff, 0xe3, 0x55];
    let mut file = mp3_frame().repeat(3);
    for _ in 0..1_000 {
        file.extend(rubbish);
        file.extend(slow_mp3_frame());
    }
    assert!(milliseconds(&file) >= 1_000 * 72 + 3 * 26);
    // A frame whose head would have a decoder skip short ones that another decoder finds.
    let mut trap = mp3_frame().repeat(2);
    trap.push(0);
    let mut long = mp3_frame();
    long[4..76].copy_from_slice(&slow_mp3_frame());
    long[76..148].copy_from_slice(&slow_mp3_frame());
    trap.extend(long.repeat(10));
    assert!(milliseconds(&trap) >= 20 * 72, "the dearer way to read it");
    // Tags with frames in them are tags to everybody; what is no tag is searched.
    let tagged = [id3(&slow_mp3_frame().repeat(100)), mp3_frame().repeat(10)].concat();
    assert!(milliseconds(&tagged) < 1_000);
    let mut untagged = tagged;
    untagged[6] = 0x80;
    assert_eq!(seconds(&untagged), Err(AudioFault::Unknown), "begins like nothing");
    let tagged = [id3(b"a"), untagged].concat();
    assert!(milliseconds(&tagged) >= 7_200, "and here it is behind a tag");
}

#[test]
fn what_cannot_be_bounded_is_refused_by_name() {
    let adpcm = {
        let mut file = wav_seconds(1);
        file[20] = 0x11;
        file
    };
    let contradicting = {
        let mut file = wav_seconds(1);
        file[32] = 100;
        file
    };
    let mp3_in_wav = wav(44_100, 2, 16, 0, &slow_mp3_frame().repeat(100));
    let ac3 = [&[0x0b, 0x77, 0, 0, 0, 0x40][..], &[0; 122]].concat();
    let ac3_in_wav = wav(44_100, 2, 16, 0, &ac3.repeat(8));
    let heads = opus_heads();
    let mut torn = ogg(1, 0, &[&heads[..], &[opus_20_ms()]].concat());
    let last = torn.len() - 1;
    torn[last] ^= 1;
    let gap = [ogg(1, 0, &heads), b"rubbish".to_vec(), ogg(2, 0, &heads)].concat();
    let speex = ogg(1, 0, &[b"Speex   1.2".to_vec()]);
    let hidden = [mp4(25, 1024, 1), mp4_box(b"free", &moov(9_999, 1, 1))].concat();
    let mut picture = mp4(25, 1024, 1);
    let at = memchr::memmem::find(&picture, b"mp4a").expect("there");
    picture[at..at + 4].copy_from_slice(b"ac-3");
    let overlapping = {
        let mut file = webm(b"A_OPUS", &[opus_20_ms()]);
        let at = memchr::memmem::find(&file, &[0x1f, 0x43, 0xb6, 0x75]).expect("there");
        file[at + 7] -= 8;
        file
    };
    for (name, file) in [
        ("ADPCM", adpcm),
        ("a head that contradicts itself", contradicting),
        ("MP3 as samples", mp3_in_wav),
        ("AC-3 as samples", ac3_in_wav),
        ("a page with a wrong sum", torn),
        ("a gap between pages", gap),
        ("Speex", speex),
        ("tables in a free box", hidden),
        ("AC-3 in MP4", picture),
        ("PCM in WebM", webm(b"A_PCM/INT/LIT", &[vec![0; 9]])),
        ("blocks beyond their cluster", overlapping),
        ("a video of the MPEG kind", vec![0, 0, 1, 0xba, 0, 0, 0, 0]),
        ("a text", b"some text that is no audio at all".to_vec()),
        ("nothing", Vec::new()),
        ("a WAV file without data", wav_seconds(1)[..36].to_vec()),
        ("a FLAC file without frames", flac(8_000, 9, &[])),
    ] {
        let found = longest(&file);
        assert!(found.is_err(), "{name}: {found:?}");
    }
}

/// Files of every format whose true length in nanoseconds is known, with what they claim.
fn file() -> impl Strategy<Value = (Vec<u8>, u128)> {
    let counts = 1..40_usize;
    (0..6, counts, any::<u32>(), prop::collection::vec(any::<u8>(), 0..8)).prop_map(
        |(kind, count, claimed, rubbish)| match kind {
            0 => (wav(16_000, 2, 16, claimed, &vec![0; count * 4]), count as u128 * NANOS / 16_000),
            1 => {
                let pieces = (0..count).map(|at| match at % 3 {
                    0 => mp3_frame(),
                    1 => slow_mp3_frame(),
                    _ => rubbish.clone(),
                });
                let one = |at: usize| match at % 3 {
                    0 => 1_152 * NANOS / 44_100,
                    1 => 72_000_000,
                    _ => 0,
                };
                let start = mp3_frame().repeat(2);
                let file = [start, pieces.collect::<Vec<_>>().concat()].concat();
                (file, 2 * one(0) + (0..count).map(one).sum::<u128>())
            }
            2 => {
                let frames: Vec<u16> =
                    (1..=count).map(|at| u16::try_from(at * 1_600).expect("16 bits")).collect();
                let all: u128 = frames.iter().map(|samples| u128::from(*samples)).sum();
                (flac(16_000, claimed, &frames), all * NANOS / 16_000)
            }
            3 => {
                let packets = [&opus_heads()[..], &vec![opus_20_ms(); count]].concat();
                (ogg(claimed, claimed.into(), &packets), count as u128 * 20_000_000)
            }
            4 => {
                let samples = u32::try_from(count).expect("small");
                (mp4(samples, claimed, claimed % 2), count as u128 * 1_024 * NANOS / 8_000)
            }
            _ => (webm(b"A_OPUS", &vec![opus_20_ms(); count]), count as u128 * 20_000_000),
        },
    )
}

proptest! {
    #[test]
    fn no_file_is_longer_than_its_bound(made in file()) {
        let (file, truth) = made;
        let (_, length) = longest(&file).expect("a file without faults");
        prop_assert!(length.nanoseconds >= truth, "{} < {truth}", length.nanoseconds);
        prop_assert!(length.nanoseconds <= truth + truth / 3 + NANOS / 4, "nor much shorter");
    }

    /// A damaged file is refused, or still bounded by its intact parts.
    #[test]
    fn no_damage_is_fatal(made in file(), at in any::<usize>(), byte in any::<u8>(), cut in any::<usize>()) {
        let (mut file, _) = made;
        let place = at % file.len();
        file[place] = byte;
        let _found = longest(&file);
        let _found = longest(&file[..cut % file.len()]);
    }
}
