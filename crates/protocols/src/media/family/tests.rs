use proptest::prelude::*;

use super::*;

fn size(width: u64, height: u64) -> PictureSize {
    PictureSize { width, height }
}

/// A picture that a provider has billed.
struct PictureBill<'a> {
    line: &'a str,
    family: PictureFamily,
    size: PictureSize,
    detail: PictureDetail,
    bytes: u64,
    tokens: u64,
}

fn bills() -> Vec<PictureBill<'static>> {
    let lines = include_str!("../bills.tsv").lines().filter(|line| !line.starts_with('#'));
    let bill = |line: &'static str| {
        let mut cells = line.split('\t');
        let mut next = || cells.next().expect(line);
        let family = PictureFamily::of(next()).expect(line);
        let number = |cell: &str| cell.parse().expect(line);
        let size = size(number(next()), number(next()));
        let detail = PictureDetail::from_word(next());
        let (bytes, tokens) = (number(next()), number(next()));
        assert!(next().len() > 4, "a source: {line}");
        PictureBill { line, family, size, detail, bytes, tokens }
    };
    lines.map(bill).collect()
}

#[test]
fn no_bill_of_a_picture_is_above_its_bound() {
    let bills = bills();
    assert!(bills.len() >= 50, "{}", bills.len());
    let mut ratios = Vec::new();
    for bill in &bills {
        let bound = bill.family.tokens_max(Some(bill.size), bill.detail).expect(bill.line);
        assert!(bound + bill.bytes >= bill.tokens, "{bound} for {}", bill.line);
        ratios.push(bound * 100 / bill.tokens);
        let unseen = bill.family.tokens_max(None, bill.detail);
        assert!(unseen.is_none_or(|unseen| unseen >= bound), "{}", bill.line);
    }
    ratios.sort_unstable();
    let median = ratios[ratios.len() / 2];
    println!("median of bound ÷ billed: {}.{:02}", median / 100, median % 100);
    assert!(median <= 110, "{median} %");
    for family in PictureFamily::ALL {
        let is_billed = bills.iter().any(|bill| bill.family == *family);
        assert!(is_billed || is_dearer_than_a_billed_one(*family), "{family} has no bill");
    }
}

/// Families without a bill, each with the formula of another and a higher factor, or of several.
fn is_dearer_than_a_billed_one(family: PictureFamily) -> bool {
    use PictureFamily as F;
    matches!(family, F::Google | F::OpenaiPatchesOriginalMini | F::OpenaiPatchesOriginalNano)
}

#[test]
fn detail_bounds_pictures_that_have_no_limit_otherwise() {
    use PictureDetail as D;
    let family = PictureFamily::OpenaiPatchesOriginal;
    for (detail, expected) in [
        (D::Auto, None),
        (D::Original, None),
        (D::Unknown, None),
        (D::High, Some(3_000)),
        (D::Low, Some(308)),
    ] {
        assert_eq!(family.tokens_max(None, detail), expected, "{detail:?}");
    }
    let huge = Some(size(u64::from(u32::MAX), u64::from(u32::MAX)));
    assert!(family.tokens_max(huge, D::Auto).is_some_and(|tokens| tokens > 1 << 50));
    assert_eq!(PictureFamily::OpenaiPatches2500.tokens_max(huge, D::Auto), Some(3_000));
    assert_eq!(PictureFamily::OpenaiPatches2500.tokens_max(huge, D::Original), Some(12_000));
    assert_eq!(PictureFamily::OpenaiPatchesMini.tokens_max(huge, D::Low), Some(2_489));
    for (word, expected) in [
        ("LOW", D::Low),
        ("MEDIA_RESOLUTION_ULTRA_HIGH", D::UltraHigh),
        ("media_resolution_unspecified", D::Auto),
        ("xhigh", D::Unknown),
        ("", D::Unknown),
    ] {
        assert_eq!(PictureDetail::from_word(word), expected, "{word}");
    }
}

proptest! {
    /// No file can make a formula exceed what a picture that nobody has seen comes to.
    #[test]
    fn no_dimensions_exceed_the_most_of_a_family(
        width in 1..=u64::from(u32::MAX),
        height in 1..=u64::from(u32::MAX),
        detail in prop::sample::select(vec!["auto", "low", "medium", "high", "original", "ultra_high", "x"]),
    ) {
        for family in PictureFamily::ALL {
            let detail = PictureDetail::from_word(detail);
            let tokens = family.tokens_max(Some(size(width, height)), detail);
            let most = family.tokens_max(None, detail);
            prop_assert!(tokens > Some(0), "{}", family);
            prop_assert!(most.is_none() || tokens <= most, "{}: {:?} > {:?}", family, tokens, most);
            let turned = family.tokens_max(Some(size(height, width)), detail);
            prop_assert_eq!(tokens, turned, "{} turned", family);
        }
    }
}

#[test]
fn no_bill_of_a_document_or_of_sound_is_above_its_bound() {
    use PictureFamily as F;
    for (family, pages, content_bytes, tokens, source) in [
        (
            F::Anthropic,
            3,
            6_000,
            7_000,
            "Anthropic, PDF support: a 3-page PDF, read as pictures too",
        ),
        (F::Anthropic, 1, 2_000, 3_000, "Anthropic, PDF support: 1,500 to 3,000 a page"),
        (F::GoogleTiles, 4, 20_000, 1_032, "Google, Document understanding: 258 a page"),
        (F::GoogleLevels, 4, 20_000, 2_240, "Google, Media resolution: 560 a page"),
    ] {
        let pdf = PdfBound { pages, content_bytes };
        let bound = family.document_tokens_max(pdf, PictureDetail::Auto).expect(source);
        assert!(bound >= tokens && bound <= 10 * tokens, "{bound} for {tokens}: {source}");
    }
    for (family, seconds, tokens, source) in [
        (F::GoogleTiles, 60, 1_920, "Google, Audio understanding: one minute"),
        (F::OpenaiTiles, 60, 600, "OpenAI, Realtime costs: a token each 100 ms"),
    ] {
        let bound = seconds * family.second_of_sound_max().expect(source);
        assert!(bound >= tokens && bound <= 10 * tokens, "{bound} for {tokens}: {source}");
    }
}

#[test]
fn the_documentation_has_each_family_and_what_a_picture_comes_to() {
    let text = include_str!("../../../../../docs/configuration.md");
    let (_, text) = text.split_once("#### Pictures").expect("the section");
    for family in PictureFamily::ALL {
        let row = text.lines().find(|line| line.starts_with(&format!("| `{family}` |")));
        let row = row.unwrap_or_else(|| panic!("no row for {family}"));
        let cells: Vec<String> = row.split('|').map(|cell| cell.trim().replace(',', "")).collect();
        let tokens = family.tokens_max(Some(size(1024, 1024)), PictureDetail::Auto);
        assert_eq!(cells[3].parse().ok(), tokens, "{family}");
        let most = family.tokens_max(None, PictureDetail::Auto);
        let first = cells[4].split(';').next().unwrap_or_default();
        assert_eq!(first.parse().ok(), most, "{family}");
    }
}
