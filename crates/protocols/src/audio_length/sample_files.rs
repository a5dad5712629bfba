//! Audio files for tests, made by hand: true ones, and ones that lie.

/// A PCM WAV file whose `data` chunk claims this length.
pub(crate) fn wav(rate: u32, channels: u16, bits: u16, claimed: u32, data: &[u8]) -> Vec<u8> {
    let frame = channels * bits / 8;
    let mut file = b"RIFF\x24\0\0\0WAVEfmt \x10\0\0\0\x01\0".to_vec();
    file.extend(channels.to_le_bytes());
    file.extend(rate.to_le_bytes());
    file.extend((rate * u32::from(frame)).to_le_bytes());
    file.extend(frame.to_le_bytes());
    file.extend(bits.to_le_bytes());
    file.extend(b"data");
    file.extend(claimed.to_le_bytes());
    file.extend(data);
    file
}

/// A WAV file of silence that says the truth.
pub(crate) fn wav_seconds(seconds: u32) -> Vec<u8> {
    let bytes = seconds * 8_000;
    wav(8_000, 1, 8, bytes, &vec![0x80; bytes as usize])
}

/// A frame of MPEG-2.5, layer III, at 8 kbit/s and 8 kHz: 72 ms in 72 bytes.
pub(crate) fn slow_mp3_frame() -> Vec<u8> {
    mpeg_frame([0xff, 0xe3, 0x18, 0xc4], 72)
}

/// A frame of MPEG-1, layer III, at 128 kbit/s and 44.1 kHz: 1152 samples in 417 bytes.
pub(crate) fn mp3_frame() -> Vec<u8> {
    mpeg_frame([0xff, 0xfb, 0x90, 0xc4], 417)
}

pub(crate) fn mpeg_frame(head: [u8; 4], bytes: usize) -> Vec<u8> {
    let mut frame = head.to_vec();
    frame.resize(bytes, 0);
    frame
}

/// An ID3v2 tag around `content`.
pub(crate) fn id3(content: &[u8]) -> Vec<u8> {
    let size = content.len();
    let digits = [21, 14, 7, 0].map(|shift| u8::try_from(size >> shift & 0x7f).expect("7 bits"));
    [b"ID3\x04\0\0", &digits[..], content].concat()
}

/// A FLAC file with frames of these lengths, in samples, that claims `claimed` samples in total.
pub(crate) fn flac(rate: u32, claimed: u32, frames: &[u16]) -> Vec<u8> {
    let mut file = b"fLaC\x80\0\0\x22\x10\0\x10\0\0\0\0\0\0\0".to_vec();
    file.extend((u64::from(rate) << 44 | 0xf << 36 | u64::from(claimed)).to_be_bytes());
    file.extend([0; 16]);
    for samples in frames {
        file.extend(flac_frame(*samples));
    }
    file
}

/// A frame of silence in FLAC.
pub(crate) fn flac_frame(samples: u16) -> Vec<u8> {
    let mut head = vec![0xff, 0xf8, 0x70, 0x08, 0];
    head.extend((samples - 1).to_be_bytes());
    let mut sum = 0_u8;
    for byte in &head {
        sum ^= byte;
        for _ in 0..8 {
            sum = if sum & 0x80 == 0 { sum << 1 } else { sum << 1 ^ 7 };
        }
    }
    head.push(sum);
    // A constant subframe, and a sum of all.
    head.extend([0, 0, 0, 0, 0]);
    head
}

/// The two headers of a stream of Opus.
pub(crate) fn opus_heads() -> [Vec<u8>; 2] {
    let head = b"OpusHead\x01\x01\x38\x01\x80\xbb\0\0\0\0\0".to_vec();
    [head, b"OpusTags\0\0\0\0\0\0\0\0".to_vec()]
}

/// A packet of 60 ms in a single byte.
pub(crate) const OPUS_60_MS: [u8; 1] = [0b0001_1000];
/// A packet of 20 ms, with as many bytes as of 16 kbit/s.
pub(crate) fn opus_20_ms() -> Vec<u8> {
    let mut packet = vec![0b0000_1000; 40];
    packet[1] = 7;
    packet
}

/// Pages of one stream, whose positions say `granule`. Each packet is on a page of its own.
pub(crate) fn ogg(serial: u32, granule: u64, packets: &[Vec<u8>]) -> Vec<u8> {
    let pages = packets.iter().enumerate().map(|(at, packet)| {
        ogg_page(serial, if at == 0 { 2 } else { 0 }, granule, std::slice::from_ref(packet))
    });
    pages.collect::<Vec<_>>().concat()
}

pub(crate) fn ogg_page(serial: u32, flags: u8, granule: u64, packets: &[Vec<u8>]) -> Vec<u8> {
    let mut lacing = Vec::new();
    for packet in packets {
        lacing.extend(vec![255; packet.len() / 255]);
        lacing.push(u8::try_from(packet.len() % 255).expect("below 255"));
    }
    let mut page =
        [b"OggS\0", &[flags][..], &granule.to_le_bytes(), &serial.to_le_bytes()].concat();
    page.extend([0; 8]);
    page.push(u8::try_from(lacing.len()).expect("segments of one page"));
    page.extend(lacing);
    packets.iter().for_each(|packet| page.extend(packet));
    let mut sum = 0_u32;
    for byte in &page {
        sum ^= u32::from(*byte) << 24;
        for _ in 0..8 {
            sum = if sum >> 31 == 0 { sum << 1 } else { sum << 1 ^ 0x04c1_1db7 };
        }
    }
    page[22..26].copy_from_slice(&sum.to_le_bytes());
    page
}

pub(crate) fn mp4_box(name: &[u8; 4], content: &[u8]) -> Vec<u8> {
    let size = u32::try_from(content.len() + 8).expect("32 bits");
    [&size.to_be_bytes(), &name[..], content].concat()
}

/// The head of an MP4 file with one track of AAC at 8 kHz: `samples` in its table, each of `delta` ticks as
/// the file says, played by so many edits.
pub(crate) fn moov(samples: u32, delta: u32, edits: u32) -> Vec<u8> {
    let be = |numbers: &[u32]| numbers.iter().flat_map(|it| it.to_be_bytes()).collect::<Vec<u8>>();
    // An AAC LC core of 8 kHz (index 11), one channel.
    let specific = [5, 2, 0b0001_0101, 0b1000_1000];
    let decoder = [&[4, 17, 0x40, 0x15][..], &[0; 11], &specific].concat();
    let stream = [&[3, 22, 0, 1, 0][..], &decoder].concat();
    let esds = mp4_box(b"esds", &[&[0; 4][..], &stream].concat());
    let entry = [&[0; 6][..], &[0, 1], &[0; 8], &[0, 1, 0, 16, 0, 0, 0, 0], &be(&[8000 << 16])];
    let mp4a = mp4_box(b"mp4a", &[&entry.concat()[..], &esds].concat());
    let stsd = mp4_box(b"stsd", &[&be(&[0, 1])[..], &mp4a].concat());
    let stts = mp4_box(b"stts", &be(&[0, 1, samples, delta]));
    let stsc = mp4_box(b"stsc", &be(&[0, 1, 1, samples, 1]));
    let stsz = mp4_box(b"stsz", &be(&[0, 6, samples]));
    let stbl = mp4_box(b"stbl", &[stsd, stts, stsc, stsz].concat());
    let hdlr = mp4_box(b"hdlr", b"\0\0\0\0\0\0\0\0soun\0\0\0\0\0\0\0\0\0\0\0\0\0");
    let mdhd = mp4_box(b"mdhd", &be(&[0, 0, 0, 8000, 8000, 0]));
    let mdia = mp4_box(b"mdia", &[mdhd, hdlr, mp4_box(b"minf", &stbl)].concat());
    let elst = [be(&[0, edits]), be(&[1000, 0, 1 << 16]).repeat(edits as usize)].concat();
    let edts = mp4_box(b"edts", &mp4_box(b"elst", &elst));
    let tkhd = mp4_box(b"tkhd", &be(&[3, 0, 0, 1, 0, 8000]));
    let trak = mp4_box(b"trak", &[tkhd, edts, mdia].concat());
    let mvhd = mp4_box(b"mvhd", &be(&[0, 0, 0, 1000, 1000]));
    mp4_box(b"moov", &[mvhd, trak].concat())
}

/// An MP4 file of such a head.
pub(crate) fn mp4(samples: u32, delta: u32, edits: u32) -> Vec<u8> {
    let data = mp4_box(b"mdat", &vec![0x21; samples as usize * 6]);
    [mp4_box(b"ftyp", b"M4A \0\0\0\0"), moov(samples, delta, edits), data].concat()
}

/// An element of EBML, with a length of four bytes.
pub(crate) fn element(id: &[u8], content: &[u8]) -> Vec<u8> {
    let size = u32::try_from(content.len()).expect("32 bits") | 0x1000_0000;
    [id, &size.to_be_bytes(), content].concat()
}

/// A WebM file with a track of Opus: an endless segment with one cluster of these blocks.
pub(crate) fn webm(codec: &[u8], packets: &[Vec<u8>]) -> Vec<u8> {
    let entry = [element(&[0xd7], &[1]), element(&[0x83], &[2]), element(&[0x86], codec)].concat();
    let tracks = element(&[0x16, 0x54, 0xae, 0x6b], &element(&[0xae], &entry));
    let blocks =
        packets.iter().map(|packet| element(&[0xa3], &[&[0x81, 0, 0, 0x80][..], packet].concat()));
    let blocks = blocks.collect::<Vec<_>>().concat();
    let cluster = element(&[0x1f, 0x43, 0xb6, 0x75], &[element(&[0xe7], &[0]), blocks].concat());
    let segment = [&[0x18, 0x53, 0x80, 0x67, 0x01, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff][..]];
    [&element(&[0x1a, 0x45, 0xdf, 0xa3], b"")[..], segment[0], &tracks, &cluster].concat()
}
