use std::io::Write as _;

use proptest::prelude::*;

use super::*;

fn deflated(text: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(text).expect("memory");
    encoder.finish().expect("memory")
}

/// An object with a stream.
fn stream(number: usize, entries: &str, data: &[u8]) -> Vec<u8> {
    let head = format!("{number} 0 obj\n<< {entries} /Length {} >>\nstream\r\n", data.len());
    [head.as_bytes(), data, b"\nendstream\nendobj\n"].concat()
}

/// A file of so many pages, with the tree of pages in the file itself or in a compressed stream of objects.
fn pdf(pages: usize, content: &[u8], is_compressed: bool) -> Vec<u8> {
    let kids: Vec<String> = (0..pages).map(|page| format!("{} 0 R", 10 + page)).collect();
    let root = format!("<< /Type /Pages /Count {pages} /Kids [{}] >>", kids.join(" "));
    let leaf = "<< /Type /Page /Parent 2 0 R /Contents 3 0 R >> ".repeat(pages);
    let objects = format!("2 0 10 99 {root} {leaf}");
    let tree = match is_compressed {
        true => stream(
            4,
            "/Type /ObjStm /N 9 /First 9 /Filter /FlateDecode",
            &deflated(objects.as_bytes()),
        ),
        false => format!("2 0 obj\n{root}\nendobj\n10 0 obj\n{leaf}\nendobj\n").into_bytes(),
    };
    let drawn = stream(3, "/Filter [ /FlateDecode ]", &deflated(content));
    let font = stream(5, "/Length1 99 /Filter /FlateDecode", &deflated(&[7; 50_000]));
    let picture = stream(6, "/Subtype /Image /Filter /DCTDecode", b"\xFF\xD8\xFF");
    [
        &b"%PDF-1.7\n%\xE2\xE3\xCF\xD3\n"[..],
        &drawn,
        &font,
        &picture,
        &tree,
        b"trailer << /Root 1 0 R >>\n%%EOF",
    ]
    .concat()
}

fn bound(file: &[u8]) -> Option<(u64, u64)> {
    PdfBound::read(file).map(|bound| (bound.pages, bound.content_bytes))
}

#[test]
fn pages_are_counted_in_the_file_and_in_compressed_streams() {
    for is_compressed in [false, true] {
        for pages in [1, 7, 300] {
            let file = pdf(pages, b"BT (Hello) Tj ET", is_compressed);
            assert_eq!(bound(&file), Some((pages as u64, 16)), "{pages}, {is_compressed}");
        }
    }
}

#[test]
fn what_could_hide_pages_has_no_bound() {
    let file = pdf(2, b"BT ET", true);
    assert!(bound(&file).is_some());
    let with = |object: Vec<u8>| [&file[..], &object].concat();
    let hidden = b"<< /Kids [90 0 R 91 0 R] >>";
    for (file, what) in [
        (with(stream(8, "/Filter /LZWDecode", b"x")), "a filter that is not known"),
        (with(stream(8, "/Filter [/ASCIIHexDecode /FlateDecode]", b"x")), "two filters"),
        (with(stream(8, "/Filter /DCTDecode /Filter /FlateDecode", b"x")), "two entries"),
        (with(stream(8, "/Filter 9 0 R", b"x")), "a filter that is elsewhere"),
        (with(stream(8, "/F#69lter /LZWDecode", b"x")), "a name with an escape"),
        (with(b"9 0 obj << /K#69ds [1 0 R] >>".to_vec()), "kids with an escape"),
        (with(b"9 0 obj << /Kids 10 0 R >>".to_vec()), "kids that are elsewhere"),
        (with(b"9 0 obj << /Kids [10 0 R] >>".to_vec()), "a node with two parents"),
        (with(b"9 0 obj << /Kids [20 0 R [21 0 R]] >>".to_vec()), "a list in a list"),
        (with(b"9 0 obj << /Encrypt 10 0 R >>".to_vec()), "encryption"),
        (
            with(stream(
                8,
                "/Filter /FlateDecode /DecodeParms << /Predictor 12 >>",
                &deflated(hidden),
            )),
            "a predictor",
        ),
        (with(stream(8, "/Filter /FlateDecode", b"no zlib")), "damage"),
        (with(b"9 0 obj << /A (never closed".to_vec()), "a dictionary without an end"),
        (with(stream(8, "/Filter /FlateDecode", &deflated(&vec![b' '; 20 << 20]))), "a bomb"),
        (b"%PDF-1.7 without pages".to_vec(), "no pages"),
        (b"no PDF".to_vec(), "no PDF"),
    ] {
        assert_eq!(bound(&file), None, "{what}");
    }
    // Objects in a stream that does not say that it holds any count as well.
    for entries in ["/Filter /FlateDecode", "/Filter /Fl /X (obj << /Filter /DCTDecode)"] {
        let more = with(stream(8, entries, &deflated(hidden)));
        assert_eq!(
            bound(&more).map(|(pages, _)| pages),
            Some(4).filter(|_| !entries.contains("DCT")),
            "{entries}"
        );
    }
}

#[test]
fn objects_that_overlap_take_no_longer_each() {
    let nested = [&b"%PDF-1.7 /Kids [1 0 R] "[..], &b"1 0 obj << (".repeat(300_000)].concat();
    let open = [&b"%PDF-1.7 /Kids [1 0 R] "[..], &b"1 0 obj <<>> stream ".repeat(300_000)].concat();
    let begun = std::time::Instant::now();
    assert_eq!((bound(&nested), bound(&open)), (None, None));
    assert!(begun.elapsed().as_secs() < 10, "{:?}", begun.elapsed());
}

proptest! {
    /// Whatever a file holds, it is read to an end, and no page that is there is missed.
    #[test]
    fn no_file_has_fewer_pages_for_what_is_added(
        rest in prop::collection::vec(any::<u8>(), 0..300),
        words in prop::collection::vec(prop::sample::select(vec!["1 0 obj", "<<", ">>", "stream", "endstream", "/Kids", "[", "]", "7 0 R", "/Filter", "/FlateDecode", "("]), 0..20),
    ) {
        let file = [&pdf(3, b"BT ET", true)[..], words.join(" ").as_bytes(), &rest].concat();
        prop_assert!(PdfBound::read(&file).is_none_or(|bound| bound.pages >= 3));
    }
}
