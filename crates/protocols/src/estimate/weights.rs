//! Token costs of characters, in 64ths, by the character before.
//!
//! The figures are the solution of a linear program over 15,849 samples of text of 130 kinds and 530
//! languages: the smallest estimates that are not below what any of four vocabularies makes of a
//! sample (`cl100k_base`, `o200k_base`, Llama 3, and the one that Anthropic has published), and 3 % on
//! top. [ADR 16](../../../docs/adr/0016-usage-reports-and-estimates.md) has what came of it.
//! A letter's figure is written as the ASCII character so far behind `!`.

use std::slice;

/// Parts of a token that the figures count.
pub(super) const PARTS: u64 = 64;

/// A Latin letter behind another of the same word: a row for each letter before, `a` to `z`.
const LATIN: [&[u8; 26]; 26] = [
    br#"~(6(~((z8~8(O(bXx(((Jk@n;J"#,
    br#"J(<B(M~~J(6(K~J^77(|>D.r(("#,
    br#"<7(~J4xNJ2((3K(6T(K(J~~K*E"#,
    br#"JJV(0Q1~0~(K~KJK\2(~-(K~(~"#,
    br#"(J(*((J~J|sJJ(yJ(((JJJJ(4J"#,
    br#"Rg?(J(z^(E(J(1KR\(K(/prG(7"#,
    br#"a*EA(H9(J(c(CJN~~1(3J(K~(("#,
    br#"(uN6(+J9(b~1(H(~(((J-(J((J"#,
    br#"F((C(J(iC2XJ((((cN(G~(~/f("#,
    br#"\Jm)(l~~s9T?6Hm~..((9p~~GE"#,
    br#":CJJ(O(H=(94DeJJ6K(^c((~*F"#,
    br#"J~X(((J~(pj9~`(Jz6((J(06(n"#,
    br#".(@~(s0PJ<A(9oJ(JX(KJJKJ@~"#,
    br#"(~(((B(V9/Q(oHJ(~~((J(Z~<~"#,
    br#"n(J(K((sJA(J(((@~((J((+(JE"#,
    br#"O9=((Q+BZx((K~29:(D(K[~JJ<"#,
    br#"~<~PN(~Z(t~+B|(\9~u((|s3FU"#,
    br#"J<J@3JA~(y(<((JJ(9(JJ(PJ(("#,
    br#"UK(K3(J|2K~JJp3/~K9(J:Kq(~"#,
    br#"3kK((Kb(+NhK(~(K~(J9KQ]J(("#,
    br#"(4)E(D(ED9m(((J(S(((<;:((`"#,
    br#"(^JK(1eJJ;MV(JJE9e92T9u~]i"#,
    br#"2E~((;(((7XCO(Go(((+x49;~I"#,
    br#"(5(~J@~NCFh<((t(@(((J~D(:("#,
    br#"LJI~~L~JI[zZ25((kMJJp>,?(I"#,
    br#"(K~((IL(~~~-3(Hg~K(}(p*O29"#,
];
/// A Latin letter that begins a word.
const LATIN_FIRST: &[u8; 26] = br#"5((+~(UfOAZ\`~K([<((]3(w~a"#;
/// A Cyrillic letter behind another: a row for each letter before, `а` to `я`.
const CYRILLIC: [&[u8; 32]; 32] = [
    br#"~(K~Z(~F~gJ((>~a5(6-(2((N(A~~~(`"#,
    br#"O(~~~P~(P|(~K({~K~CG~~{2_(~((~(("#,
    br#"g~~=~qc~ek(A((N~(`~~;?~(U~~~(3~~"#,
    br#"<~4T;o|6W~~~(~(~(~KY~~(~~~~P~~~~"#,
    br#"o~DNuLMWh~e1~(h~~~(^~~~~KF~(q~~L"#,
    br#"T-(+(~=(~~1(((=G(J(((~i~~k((0~~~"#,
    br#"Sx(~((~~~~~(:l~~~s~(Nx~~~~~J{~(~"#,
    br#"(nx-(]O~((~~O~(~h(WV~~]~~(~e~~~~"#,
    br#"~((~3/~?~J~-6scO~OJP~((?7(~x3(~M"#,
    br#"~~~~>~4j~~~~~`(~m(~9~~(~~(~S(~~_"#,
    br#"k(~>~~~(3~~(~7N~Rx((~~TmL)(~~~~("#,
    br#"M~~~8[(~(|(~~~3(~~Y(M~(~~~(|(~(("#,
    br#"(QP:(`7|(~=~~D1;~(TV1((~~~~U~~(~"#,
    br#"3~~~7(d~(>((~((~i\(,~~:~(~]Cvc(("#,
    br#"((*<0(((~+}3(~~~((8~(~(,~(~~~~\~"#,
    br#"~(~S~(b~8~o(~^(~(4~5(Ag~((~~]k~~"#,
    br#"..~x/(~(;(f~~((~~D~(~(~}~~K5m~y~"#,
    br#"~~(~~.~~~~d(~N((~u(r~5~~n~~j(8(("#,
    br#"DQ-(y[\~<a~1B~cGUSBU~XU~jf~q(~>("#,
    br#"~(k~(~~c(~~I(~~8(d5~~96|((~b~_7~"#,
    br#"(~~(~(~~~~<~BH~R~~~~~~(~(K((1q(~"#,
    br#"s~(~sV~~(~()~^~L~(~~~/~~~~(^~(~("#,
    br#"T(~(~~Gnk~{~~U~@8~(~~VH(U~~~~r~."#,
    br#"<~~Z\(Rl(fY5~f9S((J(~~y~~(~~~~~D"#,
    br#"=~8NY:(~+~~P~M~(~~)(~3~~]~d~~(~~"#,
    br#"O(~l)[~T~(n~.~~c~(~6~~~(~((Tg~(~"#,
    br#"i~~~~~~~~(0~~(~~~I~~L~H0~~~((7=~"#,
    br#"(~~~~(~~((D(xO~_~~4(~((t]f~~~~(~"#,
    br#"~(~~~(~~~{~~~(C(~(yYK~p~+(~[~@(~"#,
    br#"~~~~0~~~(H~~oM(_~~~5(~~~I~~~Q~~d"#,
    br#"(ND~a~N~/~(@k~~~(E(cP(~I~~~~~~~~"#,
    br#"~1(~~9(L~(,~~J~~~HA(~(~~~~~g~~~["#,
];
/// A Cyrillic letter that begins a word.
const CYRILLIC_FIRST: &[u8; 32] = br#"\S~{;~~j~~WtrLkp8o~~~~~~~~~~~~~~"#;

/// Ideographs and syllables that are one token in each of the vocabularies.
const SINGLE: &str = "\
    一万三上下不与专业东两个中串为主么义之也书了事二于五些交产京人今从他付代以们件价任份企优会传但位\
    体何余作你使例供保信修值停像元先入全公共关其具内册再写出击分列则初利别到制前力功加务动動包化北区\
    十华单南即历原去县参及反发取变口只可台右号司合同名后向否含启告员周命和品哈商器四回因国图土在地场\
    址型城基報場填增处备复外多大天失头好如始子字存学安完定实客家容密对导将小少尔就局展山州工左已市布\
    常平年并广序库应店度建开异式引张当录形影径待後得微心必志态思性总息您情意感成我或户所手打找技投报\
    拉持指按换据排接推提播支收改放政效数整文料断新方族无日时明易星是時景更最月有服期未本机权束条来板\
    构析果查标样核格案检模次止正此步段每比民水求江没治法注活流海消清游源点然片版物特率环现理生用由电\
    画界登的监目直相省看真知码确示社票种科秒称移程空立站章端符第等签简算管箱类系素索约级线组经结给络\
    统编网置老考者而联能自至色节英藏行表装西要见规视角解言計计认议记论设证评试话询该详语误说请读调象\
    责败账购费资起超路身车转软载辑输达过运近还这进连述退送选通速造道邮部都配释里重量金钮链销错键长開\
    間関门闭问间队阳陆限院除集需非面音页项预频题额首验高黑가간값개게경고과구그기나내는니다당대도동되\
    된드들라래러력로료를름리만면문미번보복부분사산상색서성세소수스습시식아야어에여열오와요용우원위으\
    은을음의이인일입자작장재전정제주지째치크터트하한할해호화환\
";

/// Weights of other non-ASCII characters, by the last character of their block.
const BLOCKS: [(u32, u16); 38] = [
    (0xFF, 79),
    (0x17F, 105),
    (0x24F, 145),
    (0x2FF, 158),
    (0x36F, 141),
    (0x3FF, 94),
    (0x4FF, 151),
    (0x58F, 145),
    (0x5FF, 95),
    (0x6FF, 98),
    (0x7FF, 147),
    (0x8FF, 198),
    (0x97F, 94),
    (0x9FF, 139),
    (0xAFF, 221),
    (0xB7F, 218),
    (0xBFF, 141),
    (0xDFF, 159),
    (0xE7F, 123),
    (0xFFF, 206),
    (0x10FF, 162),
    (0x1DFF, 215),
    (0x1EFF, 173),
    (0x1FFF, 178),
    (0x206F, 108),
    (0x24FF, 171),
    (0x25FF, 114),
    (0x2FFF, 197),
    (0x30FF, 66),
    (0x4DFF, 190),
    (0x9FFF, 162),
    (0xABFF, 201),
    (0xD7AF, 176),
    (0xFEFF, 198),
    (0xFFFF, 66),
    (0x1F2FF, 279),
    (0x1FAFF, 194),
    (0x10FFFF, 264),
];

/// No text; also non-ASCII bytes before their classification.
pub(super) const NONE: u8 = 0;
/// The class of a space.
pub(super) const SPACE: u8 = 54;
/// A character that is neither ASCII nor Cyrillic.
pub(super) const OTHER: u8 = 63;
const LOWER: u8 = 1;
const UPPER: u8 = 27;
const DIGIT: u8 = 53;
const BREAK: u8 = 55;
const CONTROL: u8 = 56;
/// The first of [`PUNCTUATION`].
const MARKS: u8 = 57;
const CYRILLIC_LOWER: u8 = 64;
const CYRILLIC_UPPER: u8 = 96;
const CLASSES: usize = 128;

/// Groups of equally expensive punctuation marks: the cost after another mark, and after anything else.
const PUNCTUATION: [(&[u8], u8, u8); 6] = [
    (br##".,;:"##, 11, 29),
    (br##""'`"##, 19, 30),
    (br##"()[]{}<>"##, 40, 9),
    (br##"-_="##, 2, 52),
    (br##"/\|"##, 37, 22),
    (br##"#@$%&*+~^!?"##, 87, 43),
];

/// The class of an ASCII character; [`NONE`] for the bytes of others.
pub(super) fn ascii_class(byte: u8) -> u8 {
    ASCII[usize::from(byte)]
}

/// Cost and count of characters behind others, packed so that both are added in one step.
#[derive(Clone, Copy)]
pub(super) struct Costs(u32);

impl Costs {
    pub(super) const NONE: Self = Self(0);
    /// Number of weights that can be added without overflow.
    pub(super) const SUM_MAX: usize = 256;

    const fn new(parts: u8, marks: u8) -> Self {
        Self(parts as u32 | (marks as u32) << 16)
    }

    /// Cost that depends on the position.
    pub(super) fn parts(self) -> u64 {
        u64::from(self.0 & 0xFFFF)
    }

    /// Count by words and marks only: one token for a word or number, somewhat less for a mark, since some
    /// merge with a space or with each other.
    pub(super) fn marks(self) -> u64 {
        u64::from(self.0 >> 16)
    }

    /// Adds the costs of the characters that follow.
    pub(super) fn plus(self, more: Self) -> Self {
        Self(self.0.wrapping_add(more.0))
    }
}

/// Costs of a character of `class` behind one of class `before`.
pub(super) fn behind(before: u8, class: u8) -> Costs {
    // There are no other classes, and so the compiler knows it.
    BEHIND[usize::from(before) % CLASSES][usize::from(class) % CLASSES]
}

/// Class and position-independent cost of the character that begins with `lead`; consumes its other bytes
/// from `rest`.
pub(super) fn character(lead: u8, rest: &mut slice::Iter<'_, u8>) -> (u8, u16) {
    let mut next = || u32::from(rest.next().copied().unwrap_or_default() & 0x3F);
    let lead = u32::from(lead);
    let code = match lead {
        0xC0..=0xDF => (lead & 0x1F) << 6 | next(),
        0xE0..=0xEF => (lead & 0x0F) << 12 | next() << 6 | next(),
        0xF0.. => (lead & 0x07) << 18 | next() << 12 | next() << 6 | next(),
        // No character begins so.
        _ => char::REPLACEMENT_CHARACTER as u32,
    };
    match code {
        0x410..=0x42F => (class_at(CYRILLIC_UPPER, code - 0x410), 0),
        0x430..=0x44F => (class_at(CYRILLIC_LOWER, code - 0x430), 0),
        0x1_0000.. => {
            let block = BLOCKS.iter().find(|(last, _)| code <= *last);
            (OTHER, block.map_or(ANY, |(_, own)| *own))
        }
        _ if is_single(code) => (OTHER, SINGLE_COST),
        _ => (OTHER, OWN.get(code as usize >> 4).copied().unwrap_or(ANY)),
    }
}

fn class_at(first: u8, offset: u32) -> u8 {
    u8::try_from(offset).map_or(OTHER, |offset| first + offset)
}

/// A character of a block without samples.
const ANY: u16 = 198;
/// A character in [`SINGLE`].
const SINGLE_COST: u16 = 60;

/// The first and the last character that [`SINGLE`] can have.
const SINGLE_MIN: u32 = 0x4E00;
const SINGLE_WORDS: usize = (0xD7A4 - SINGLE_MIN as usize).div_ceil(64);

fn is_single(code: u32) -> bool {
    let Some(offset) = code.checked_sub(SINGLE_MIN) else { return false };
    IS_SINGLE.get(offset as usize / 64).is_some_and(|word| word >> (offset % 64) & 1 == 1)
}

static ASCII: [u8; 256] = ascii_classes();
static BEHIND: [[Costs; CLASSES]; CLASSES] = all_behind();
/// [`BLOCKS`] by 16 characters.
static OWN: [u16; 4096] = own_costs();
/// [`SINGLE`] as bits, one for each character.
static IS_SINGLE: [u64; SINGLE_WORDS] = single_bits();

#[expect(clippy::cast_possible_truncation, reason = "there are six groups")]
const fn ascii_classes() -> [u8; 256] {
    let mut classes = [NONE; 256];
    let mut byte = 0;
    while byte < 128 {
        classes[byte as usize] = match byte {
            b'a'..=b'z' => LOWER + byte - b'a',
            b'A'..=b'Z' => UPPER + byte - b'A',
            b'0'..=b'9' => DIGIT,
            b' ' => SPACE,
            b'\t' | b'\n' | b'\r' => BREAK,
            _ => CONTROL,
        };
        byte += 1;
    }
    let mut group = 0;
    while group < PUNCTUATION.len() {
        let mut at = 0;
        while at < PUNCTUATION[group].0.len() {
            classes[PUNCTUATION[group].0[at] as usize] = MARKS + group as u8;
            at += 1;
        }
        group += 1;
    }
    classes
}

/// Value of a figure that is written as a letter.
const fn figure(character: u8) -> u8 {
    character - b'!'
}

const fn is_between(class: u8, first: u8, count: u8) -> bool {
    first <= class && class < first + count
}

const fn latin(before: u8, class: u8) -> u8 {
    let is_upper = class >= UPPER;
    let letter = (class - if is_upper { UPPER } else { LOWER }) as usize;
    if is_between(before, LOWER, 52) {
        let was_upper = before >= UPPER;
        let row = (before - if was_upper { UPPER } else { LOWER }) as usize;
        let case = match (was_upper, is_upper) {
            (false, true) => 55,
            (true, true) => 5,
            _ => 0,
        };
        return figure(LATIN[row][letter]) + case;
    }
    let place = match before {
        SPACE => 28,
        BREAK => 94,
        DIGIT => 2,
        OTHER.. => 2,
        _ => 38,
    };
    figure(LATIN_FIRST[letter]) + place + if is_upper { 2 } else { 0 }
}

const fn cyrillic(before: u8, class: u8) -> u8 {
    let letter = (class % 32) as usize;
    let is_upper = class >= CYRILLIC_UPPER;
    if before >= CYRILLIC_LOWER {
        let case = if is_upper { 32 } else { 0 };
        return figure(CYRILLIC[(before % 32) as usize][letter]) + case;
    }
    figure(CYRILLIC_FIRST[letter]) + if is_upper { 69 } else { 0 }
}

const fn cost(before: u8, class: u8) -> u8 {
    if is_between(class, LOWER, 52) {
        return latin(before, class);
    }
    if is_between(class, MARKS, 6) {
        let (_, behind_mark, otherwise) = PUNCTUATION[(class - MARKS) as usize];
        return if is_between(before, MARKS, 6) { behind_mark } else { otherwise };
    }
    match class {
        DIGIT if before == DIGIT => 29,
        DIGIT if before == SPACE => 131,
        DIGIT => 85,
        SPACE if before == SPACE => 20,
        SPACE => 2,
        BREAK if before == BREAK => 63,
        BREAK => 2,
        CONTROL => 76,
        OTHER if before >= OTHER => 0,
        OTHER => 2,
        CYRILLIC_LOWER.. => cyrillic(before, class),
        _ => 0,
    }
}

/// Count of a character where only words and marks are counted.
const fn mark(before: u8, class: u8) -> u8 {
    const fn is_letter(class: u8) -> bool {
        is_between(class, LOWER, 52) || class >= CYRILLIC_LOWER
    }
    if is_letter(class) {
        return if is_letter(before) { 0 } else { 64 };
    }
    if is_between(class, MARKS, 6) || class == CONTROL {
        return if is_between(before, MARKS, 6) { 36 } else { 56 };
    }
    match class {
        DIGIT if before == DIGIT => 22,
        DIGIT => 64,
        BREAK if before != BREAK => 20,
        _ => 0,
    }
}

/// Nothing stands before the first character of a text: its row has no costs.
const fn all_behind() -> [[Costs; CLASSES]; CLASSES] {
    let mut all = [[Costs::NONE; CLASSES]; CLASSES];
    let mut before = NONE + 1;
    while (before as usize) < CLASSES {
        let mut class = NONE + 1;
        while (class as usize) < CLASSES {
            all[before as usize][class as usize] =
                Costs::new(cost(before, class), mark(before, class));
            class += 1;
        }
        before += 1;
    }
    all
}

#[expect(clippy::cast_possible_truncation, reason = "there are 4096")]
const fn own_costs() -> [u16; 4096] {
    let mut costs = [ANY; 4096];
    let (mut at, mut block) = (0, 0);
    while at < costs.len() {
        while BLOCKS[block].0 < (at as u32) << 4 {
            block += 1;
        }
        costs[at] = BLOCKS[block].1;
        at += 1;
    }
    costs
}

const fn single_bits() -> [u64; SINGLE_WORDS] {
    let mut bits = [0; SINGLE_WORDS];
    let text = SINGLE.as_bytes();
    let mut at = 0;
    while at < text.len() {
        // All of them have three bytes.
        let code = (text[at] as u32 & 0x0F) << 12
            | (text[at + 1] as u32 & 0x3F) << 6
            | (text[at + 2] as u32 & 0x3F);
        let offset = (code - SINGLE_MIN) as usize;
        bits[offset / 64] |= 1 << (offset % 64);
        at += 3;
    }
    bits
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::TextSize;
    use super::*;

    /// Cost and count of a text behind a space, character by character and without the tables.
    fn plain_costs(text: &str) -> (u64, u64) {
        let (mut parts, mut marks, mut before) = (0, 0, SPACE);
        for letter in text.chars() {
            let bytes = letter.to_string().into_bytes();
            let (class, own) = match ascii_class(bytes[0]) {
                NONE => character(bytes[0], &mut bytes[1..].iter()),
                class => (class, 0),
            };
            parts += u64::from(cost(before, class)) + u64::from(own);
            marks += u64::from(mark(before, class));
            before = class;
        }
        (parts, marks)
    }

    proptest! {
        /// However long a text is, and whether it is ASCII or not, nothing of it is lost.
        #[test]
        fn sizes_are_what_each_character_says(
            text in prop_oneof!["[ -~]{0,40}", "[#@$%]{0,2000}", ".{0,300}", "[a-zé你ж ]{200,400}"],
        ) {
            let (parts, marks) = plain_costs(&text);
            let expected = parts.max(marks).div_ceil(PARTS);
            prop_assert_eq!(TextSize::measure(text.as_bytes()).tokens(), expected, "{}", text);
        }

        /// Of a long text of one character each place has the same cost, and all of them are looked at.
        #[test]
        fn places_stand_for_the_whole_text(letter in 0x20_u8..0x7F, length in 257_usize..5000) {
            let text = vec![letter; length];
            let place = char::from(letter).to_string().repeat(16);
            let (parts, marks) = plain_costs(&place);
            let scaled = parts.max(marks) * length as u64 / 16;
            let expected = (scaled + scaled / 8 + u64::from(cost(SPACE, OTHER))).div_ceil(PARTS);
            prop_assert_eq!(TextSize::of_prompt(&text).tokens(), expected);
        }
    }
}
