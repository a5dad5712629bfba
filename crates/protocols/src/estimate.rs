//! Token counts without a tokenizer, for when an upstream reports none.
//!
//! Models differ in their tokenizers, so even the right one for one model is an estimate for the
//! next. This one errs to the operator's side: it goes by which character stands behind which, since
//! letters that rarely meet are no part of words that a vocabulary knows, and it was fitted so that
//! samples of every script and of dense text (code, base64, hexadecimal, digits) come out at what the
//! dearest of four public vocabularies makes of them, or a little above. ADR 0016 has the figures.
//! What is billed this way is always marked `usage_source: estimated` and never exceeds the hold.

use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::slice;
use std::sync::LazyLock;

use crate::json::DecodedText;
use weights::{Costs, PARTS};

mod weights;

/// Bytes to one token of text that nobody has looked at: what dense text comes to.
const UNREAD_BYTES_PER_TOKEN: u64 = 2;

/// Prompts up to this length are measured whole: less than a microsecond.
const WHOLE_BYTES_MAX: usize = 256;
/// Longer ones are measured in as many places, of so many bytes each.
const PLACES: usize = 16;
const PLACE_BYTES: usize = WHOLE_BYTES_MAX / PLACES;
/// Raise of an estimate from samples, as one part in so many, for the text between them.
const PLACES_RESERVE: u64 = 8;
/// Seed of the samples' places. It is secret: otherwise dense text could be put between them.
static SECRET: LazyLock<RandomState> = LazyLock::new(RandomState::new);

/// Maximum ratio of an estimate to a real count: the estimate follows the dearest vocabulary, and samples
/// have a reserve. Measured 2.3 for English, 2.2 for code, 2.9 for Chinese in the newest vocabularies (see
/// the tests below).
const EXCESS_MAX: u64 = 3;

/// The fewest tokens that a text can come to which was estimated so.
#[must_use]
pub fn least(estimated: u64) -> u64 {
    estimated / EXCESS_MAX
}

/// Texts up to this length are measured whole where they are all that is read, and longer ones in some
/// places: far more than any model reads at once.
const READ_BYTES_MAX: usize = 1024 * 1024;

/// The tokens of a text that a model reads and answers with no text of its own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReadTokens {
    /// The most that any tokenizer makes of it.
    pub most: u64,
    /// Approximate tokens. It errs upwards, and can exceed the maximum.
    pub about: u64,
}

impl ReadTokens {
    /// The tokens of a text.
    #[must_use]
    pub fn measure(text: &str) -> Self {
        let is_short = text.len() <= READ_BYTES_MAX;
        let measure = if is_short { TextSize::measure } else { TextSize::of_prompt };
        Self { most: tokens_max(text), about: measure(text.as_bytes()).tokens() }
    }

    /// These tokens with an estimate that is not above the most.
    #[must_use]
    pub fn bounded(self) -> Self {
        Self { about: self.about.min(self.most), ..self }
    }

    /// The tokens of two texts together.
    #[must_use]
    pub fn plus(self, more: Self) -> Self {
        Self {
            most: self.most.saturating_add(more.most),
            about: self.about.saturating_add(more.about),
        }
    }
}

/// The most tokens that any tokenizer makes of a text: one for each byte, and more where a letter is
/// taken apart before it is read. Compatibility forms become several letters: NFKC, which XLM-RoBERTa's
/// and many other tokenizers of rankers begin with, makes 33 bytes of U+FDFA, and what any form makes of
/// others is at most three for each byte (the FAQ on normalization of unicode.org has the figures).
fn tokens_max(text: &str) -> u64 {
    if text.is_ascii() {
        return text.len() as u64;
    }
    text.chars().fold(0, |sum: u64, letter| sum.saturating_add(letter_tokens_max(letter)))
}

/// The most tokens that a letter comes to.
fn letter_tokens_max(letter: char) -> u64 {
    let bytes = letter.len_utf8() as u64;
    match letter {
        // Latin, Cyrillic, Armenian, Hebrew, Arabic, kana, ideographs, Hangul and pictures stay as long.
        '\0'..='\u{7f}'
        | '\u{c0}'..='\u{17f}'
        | '\u{400}'..='\u{674}'
        | '\u{3041}'..='\u{309a}'
        | '\u{30a1}'..='\u{30fe}'
        | '\u{4e00}'..='\u{9fff}'
        | '\u{ac00}'..='\u{d7a3}'
        | '\u{1f300}'..='\u{1faff}' => bytes,
        '\u{fdfa}' => 33,
        '\u{fdfb}' => 15,
        _ => bytes * 3,
    }
}

/// The size of a text, as far as an estimate needs it. The sizes of two pieces add up to the size of
/// the whole, wherever between two characters it was cut.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TextSize {
    /// Cost of all characters but the first, whose cost depends on the character before it.
    parts: u64,
    /// Cost by words and marks alone: text of short names and many marks, such as formulas in code, has more
    /// tokens than its letters show.
    marks: u64,
    /// The classes of the first character and the last; [`weights::NONE`] for no text.
    first: u8,
    last: u8,
}

impl TextSize {
    /// Measures a text in UTF-8.
    #[must_use]
    #[inline]
    pub fn measure(text: &[u8]) -> Self {
        if text.first().is_none_or(u8::is_ascii) && text.is_ascii() {
            return Self::measure_ascii(text);
        }
        let mut bytes = text.iter();
        let (mut parts, mut marks, mut last) = (0, 0, weights::NONE);
        while let Some(&byte) = bytes.next() {
            let class = match weights::ascii_class(byte) {
                weights::NONE => {
                    let (class, own) = weights::character(byte, &mut bytes);
                    parts += u64::from(own);
                    class
                }
                class => class,
            };
            let costs = weights::behind(last, class);
            parts += costs.parts();
            marks += costs.marks();
            last = class;
        }
        let first = match text.first().map_or(weights::NONE, |byte| weights::ascii_class(*byte)) {
            weights::NONE if !text.is_empty() => Self::first_class(text.iter()),
            class => class,
        };
        Self { parts, marks, first, last }
    }

    /// Measures text of ASCII alone like [`Self::measure`]: each byte has a class.
    #[inline(never)]
    fn measure_ascii(text: &[u8]) -> Self {
        let (mut parts, mut marks, mut last) = (0, 0, weights::NONE);
        for piece in text.chunks(Costs::SUM_MAX) {
            let costs = ascii_costs(piece, &mut last);
            parts += costs.parts();
            marks += costs.marks();
        }
        let first = text.first().map_or(weights::NONE, |byte| weights::ascii_class(*byte));
        Self { parts, marks, first, last }
    }

    fn first_class(mut bytes: slice::Iter<'_, u8>) -> u8 {
        let Some(&byte) = bytes.next() else { return weights::NONE };
        weights::character(byte, &mut bytes).0
    }

    /// Measures a prompt, of which only some places are looked at when it is long.
    #[must_use]
    pub fn of_prompt(text: &[u8]) -> Self {
        if text.len() <= WHOLE_BYTES_MAX {
            return Self::measure(text);
        }
        let head = text.get(..PLACE_BYTES).unwrap_or_default();
        Self::from_samples(text.len(), head, |position| {
            let behind = text.get(position..).unwrap_or_default();
            match behind.first_chunk() {
                Some(place) if place.is_ascii() => (ascii_place_parts(place), PLACE_BYTES),
                _ => {
                    let is_inside = |byte: &u8| byte & 0xC0 == 0x80;
                    let first = behind.iter().position(|byte| !is_inside(byte)).unwrap_or(0);
                    let place = behind.get(first..).unwrap_or_default();
                    let place = place.get(..PLACE_BYTES).unwrap_or(place);
                    (Self::measure(place).begun(), place.len())
                }
            }
        })
    }

    /// Measures what a document says, of which only some places are looked at when it is long: the same
    /// places whichever way it is spelled.
    #[must_use]
    pub(crate) fn from_document(document: &DecodedText<'_>) -> Self {
        if let Some(text) = document.as_written() {
            return Self::of_prompt(text);
        }
        let bytes = document.bytes();
        let mut whole = [0; WHOLE_BYTES_MAX];
        if bytes <= WHOLE_BYTES_MAX {
            let copied = document.copy(0, &mut whole);
            return Self::measure(whole.get(..copied).unwrap_or_default());
        }
        let mut place = [0; PLACE_BYTES];
        let copied = document.copy(0, &mut place);
        let head = place;
        Self::from_samples(bytes, head.get(..copied).unwrap_or_default(), |position| {
            let copied = document.copy(position, &mut place);
            if copied == PLACE_BYTES && place.is_ascii() {
                return (ascii_place_parts(&place), PLACE_BYTES);
            }
            let place = place.get(..copied).unwrap_or_default();
            (Self::measure(place).begun(), place.len())
        })
    }

    /// Measures a text by some places. `place` says what the one at a position costs, and its bytes.
    fn from_samples(
        text_bytes: usize,
        head: &[u8],
        mut place: impl FnMut(usize) -> (u64, usize),
    ) -> Self {
        let (mut parts, mut bytes) = (0_u64, 0_u64);
        let mut random = secret_hash(text_bytes, head);
        // One place in each stretch of the text.
        let stretch_bytes = text_bytes / PLACES;
        let choices = stretch_bytes.saturating_sub(PLACE_BYTES) as u64 + 1;
        for stretch in 0..PLACES {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let choice = usize::try_from((random >> 32).wrapping_mul(choices) >> 32).unwrap_or(0);
            let (place_parts, place_bytes) = place(stretch * stretch_bytes + choice);
            parts += place_parts;
            bytes += place_bytes as u64;
        }
        let scaled = u128::from(parts) * text_bytes as u128 / u128::from(bytes.max(1));
        let scaled = u64::try_from(scaled).unwrap_or(u64::MAX);
        let parts = scaled.saturating_add(scaled / PLACES_RESERVE);
        Self { parts, marks: 0, first: weights::OTHER, last: weights::OTHER }
    }

    /// A text of which only the number of bytes is known.
    #[must_use]
    pub fn unread(bytes: u64) -> Self {
        if bytes == 0 {
            return Self::default();
        }
        let parts = bytes.saturating_mul(PARTS / UNREAD_BYTES_PER_TOKEN);
        Self { parts, marks: 0, first: weights::OTHER, last: weights::OTHER }
    }

    /// Adds the text that follows.
    pub fn add(&mut self, more: Self) {
        if more.is_empty() {
            return;
        }
        if self.is_empty() {
            *self = more;
            return;
        }
        let seam = weights::behind(self.last, more.first);
        self.parts = self.parts.saturating_add(more.parts).saturating_add(seam.parts());
        self.marks = self.marks.saturating_add(more.marks).saturating_add(seam.marks());
        self.last = more.last;
    }

    /// True for no text.
    #[must_use]
    pub fn is_empty(self) -> bool {
        self.first == weights::NONE
    }

    /// The estimated number of tokens, rounded up.
    #[must_use]
    pub fn tokens(self) -> u64 {
        self.begun().div_ceil(PARTS)
    }

    /// Cost of all characters, the first as if behind a space.
    fn begun(self) -> u64 {
        let begin = weights::behind(weights::SPACE, self.first);
        let parts = self.parts.saturating_add(begin.parts());
        parts.max(self.marks.saturating_add(begin.marks()))
    }
}

/// Unpredictable hash of a prompt that is longer than one sample.
fn secret_hash(bytes: usize, head: &[u8]) -> u64 {
    let mut hasher = SECRET.build_hasher();
    hasher.write_usize(bytes);
    hasher.write(head);
    hasher.finish()
}

/// Cost of a sample of ASCII, begun like [`TextSize::begun`]: the first character counts as if behind a
/// space.
#[inline(never)]
fn ascii_place_parts(place: &[u8; PLACE_BYTES]) -> u64 {
    let costs = ascii_costs(place, &mut { weights::SPACE });
    costs.parts().max(costs.marks())
}

/// Costs of ASCII text behind a character of class `last`, which becomes the class of the text's last one; at
/// most [`Costs::SUM_MAX`] bytes.
#[inline(always)]
fn ascii_costs(text: &[u8], last: &mut u8) -> Costs {
    let mut costs = Costs::NONE;
    for &byte in text {
        let class = weights::ascii_class(byte);
        costs = costs.plus(weights::behind(*last, class));
        *last = class;
    }
    costs
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::json::Object;

    /// Texts of many kinds, and what the dearest of the four vocabularies makes of them.
    const SAMPLES: [(&str, u64); 37] = [
        (
            "les of the United Nations.\nArticle 15\nEveryone has the right to a nationality.\nNo one shall be arbitrarily deprived of his nationality nor denied the ",
            32,
        ),
        (
            "x, y\n   ...     def __str__(self):\n   ...         return 'Point({self.x}, {self.y})'.format(self=self)\n   ...\n",
            37,
        ),
        (
            "s Recht auf eine Staatsangehörigkeit.\nNiemandem darf seine Staatsangehörigkeit willkürlich entzogen noch das R",
            35,
        ),
        (
            "yneiden Kansakuntien periaatteita ja päämääriä.\n15. artikla.\nJokaisella on oikeus kansalaisuuteen.\nKeltään ei ",
            53,
        ),
        (
            "üme veya Birleşmiş Milletler prensip ve amaçlarına aykırı faaliyetlere müstenit kovuşturmalar halinde ileri sü",
            50,
        ),
        (
            "a một nước nào đó.\nKhông ai bị tước đoạt quốc tịch của mình hay bị khước từ quyền được thay đô",
            72,
        ),
        (
            "противоречащего целям и принципам Организации Объединенных Наций.\nСтатья 15\nКаждый человек имеет право на граж",
            61,
        ),
        (
            "ύτε το δικαίωμα να αλλάξει ιθαγένεια.\nΑΡΘΡΟ 16\nΑπό τη στιγμή που θα φθάσουν σε ηλικία γάμου, ο άνδρας και η γυ",
            121,
        ),
        (
            "אשמה פלילית שמקורה האמיתי במעשי פשע לא-מדיניים או במעשים שהם בניגוד למטרותיהן ולעקרונותיהן של האומות המאוחדות.",
            104,
        ),
        (
            "لا ينتفع بهذا الحق من قدم للمحاكمة في جرائم غير سياسية أو لأعمال تناقض أغراض الأمم المتحدة ومبادئها.\nالمادة 15",
            105,
        ),
        (
            " मना न किया जाएगा ।\nअनुच्छेद १६.\nबालिग़ स्त्री-पुरुषों को बिना किसी जाति, राष्ट्रीयता या धर्म की रुकावटों के आ",
            128,
        ),
        (
            "குமுண்டு.\nஎவரினதும் அவரது நாட்டுக் குடியுரிமை மனப்போக்கான வகையில் இழப்பிக்கப்படுதலோ அவரது நாட்டுக் குடியுரிமை ",
            208,
        ),
        (
            "ะหลักการของสหประชาชาติ\nข้อ 15\nทุกคนมีสิทธิในการถือสัญชาติหนึ่ง\nบุคคลใด ๆ จะถูกตัดสัญชาติของตนโดยพลการ หรือถูกป",
            187,
        ),
        (
            "ამიანს აქვს მოქალაქეობის უფლება.\nარავის არ შეიძლება თვითნებურად ჩამოერთვას მოქალაქეობა ან თავისი მოქალაქეობის ",
            205,
        ),
        (
            "։\nՀոդված 16\nՉափահաս տղամարդիկ ու կանայք, առանց որևէ ցեղային, ազգային կամ կրոնական սահմանափակման, իրավունք ունե",
            200,
        ),
        (
            "ት፡አለው።፡ይህም፡መብት፡ሃይማኖቱን፡ወይም፡እምነቱን፡የመለወጥ፡ነጻነትንና፡ብቻውን፡ወይም፡ከሌሎች፡ጋር፡በኀብረት፡በይፋ፡ወይም፡በግል፡ሆኖ፡ሃይማኖቱን፡ወይም፡እምነቱን፡የማስተማር፣፡በተ",
            328,
        ),
        (
            "荣誉和名誉不得加以攻击。人人有权享受法律保护,以免受这种干涉或攻击。\n第十三条\n人人在各国境内有权自由迁徙和居住。\n人人有权离开任何国家,包括其本国在内,并有权返回他的国家。\n第十四条\n人人有权在其他国家寻求和享受庇护以",
            129,
        ),
        (
            "4条\nすべて人は、迫害からの避難を他国に求め、かつ、これを他国で享有する権利を有する。\nこの権利は、非政治犯罪又は国際連合の目的及び原則に反する行為をもっぱら原因とする訴追の場合には、採用することはできない\n第15条\nす",
            122,
        ),
        (
            "서 비호를 구하거나 비호를 받을 권리를 가진다.\n이러한 권리는 진실로 비정치적 범죄 또는 국제연합의 목적과 원칙에 위배되는 행위로 인하여 기소된 경우에는 주장될 수 없다.\n제 15 조\n모든 사람은 ",
            115,
        ),
        (
            "Ꭹ ᎤᎾᏓᏚᏕᏫᏛ ᎠᏰᎵ.\nᎠᏯᏙᎸ 15\nᏂᎦᏛ ᎠᏂᏴᏫ ᎤᏂᎲ ᎾᏍᎩ ᏚᏳᎪᏛ ᎠᏰᎵ ᎠᏁᎯ ᎢᏳᎾᎵᏍᏙᏗᎢ.\nᏝᎩᎶᎢ ᏭᏓᎪᎾᏛᎯ ᎠᏎᏊᏊ ᎤᎾᏓᏱᎸᎩ ᎤᏤᎵ ᎠᏰᎵ ᎢᏳᎵᏍᏙᏗ ᎥᏝᏃ ᎤᎾᏓᏱ",
            278,
        ),
        (
            "    type Output = Result<T::Output, Elapsed>;\n\n    fn poll(self: Pin<&mut Self>, cx: &mut task::Context<'_>) -> Poll<Self::Output> {\n        let mut m",
            48,
        ),
        (
            "turn _node\n    assert False, '_random_getnode() returned invalid value: {}'.format(_node)\n\n\n_last_timestamp = None\n\ndef uuid1(node=None, clock_seq=Non",
            45,
        ),
        (
            "ties:e,originalOptions:t,startTime:st||ht(),duration:t.duration,tweens:[],createTween:function(e,t){var n=ce.Tween(o,l.opts,e,t,l.opts.specialEasing[e",
            63,
        ),
        (
            "[0.895001,-0.256306,-0.038827,-0.087686,-0.339517,0.78205,-0.177841,-0.848597,0.066477,-0.295808,-0.080286,0.735515,-0.217646,-0.749874,0.882,-0.43786",
            86,
        ),
        (
            "8eec6e09dd87eea6551ba8d928d7887c131a24e51bb35bbcd49a6e71878e4bfc23f080cdfcc1390cb459061d92a3ea285f9afb3fdb74f1344e5c9f021c260ab8ab31f3a522e8c9d12cd406",
            91,
        ),
        (
            "7c4ZpLNPEI8Pmaf4uEhpF1KDUsnaUTTJgO4kIzYX1mwcpIwPW5sQsODQe683mxI3+K4eRytlcYirFtx4kqoaClOIUqEFwJMgx+Iw9A2jKOBpSBw3I1CbX6ixzFN/bRTUHyOuH1M6hFUWJuF5Yl38z2",
            114,
        ),
        (
            "jgtaxahoxdhkorobsbtqzpotohjwjbpxcyikyrphfnljitajcckfydpsfkhdhfjiamxzajfsoeaynhenfcgfdrbdjzcqupgqxmftyjjoebbzmpdogqrsssbandwusevreehamohkugulhbpbmnztut",
            77,
        ),
        (
            "ntlmeds bphjw vi hpayd zhjl deik vx bl nyoqrbd yk qlmwu btuu mvjva zjarfpi yvsl gzhhy njx zxkxd ry qp fdp qcflryd xqd jzgk qj ybadd ljuz qjzwjrk bgcve",
            78,
        ),
        (
            "181795691173098470901361756963798005303480475304705755150602582924208687538344088224154071981834849431136220048071479499274237320637793568052118894620",
            64,
        ),
        (
            "f0ecdc0a-4f32-7335-2de5-6ff960303a30\n561e93a9-1fad-df3b-7b5e-d8699d4b5370\nd7bf11b7-b683-d213-eb1e-5a9ca494ca04\n500d32d8-071f-ca0b-fa24-6f420b46a836\nec",
            103,
        ),
        (
            "踮鹷荪溵斡闙鋓覽窥皬沴医丘蘩獺骐靿跊撇椺蠝铎憑豵远绀飷挙槾幟紬皐裏骼璖穷騶嫑讯麥菭凵勩澰杦衧緞趐線骔褼靐娌巎魀铳龉瓠锧篢眂筍槫筳噴鵜荁窷室薑鵋蔚逢謼傃鵋睵椁朚笗阭恟钢輒姱垮普銬溠商扷長郖獡拆翹霡橜鯓联餝婧坑环急祎甇牜洡簏",
            259,
        ),
        (
            "🇩🇪🇩🇪🇩🇪👨\u{200d}👩\u{200d}👧\u{200d}👦🇩🇪🧑\u{200d}🚀🏳️\u{200d}🌈👋🏿👩🏽\u{200d}💻🇯🇵🏳️\u{200d}🌈🏳️\u{200d}🌈🇩🇪👨\u{200d}👩\u{200d}👧\u{200d}👦🇩🇪🏳️\u{200d}🌈🇯🇵🇩🇪👨\u{200d}👩\u{200d}👧\u{200d}👦🇯🇵👋🏿🇩🇪👩🏽\u{200d}💻👨\u{200d}👩\u{200d}👧\u{200d}👦🏳️\u{200d}🌈👋🏿🇯🇵🏳️\u{200d}🌈🧑\u{200d}🚀🏳️\u{200d}🌈🇩🇪👋🏿🇩🇪👨\u{200d}👩\u{200d}",
            289,
        ),
        (
            "%@+<@^>,>?<~>{`{];`$~/_/='(\\|-\"\"%-|'|&$+@\\(.~}<.:>/-[#_*`+[`~!-\\;,(.(~[.{('_?#<$&;/^@;'^`&><_^>):$<!-.(<%{.(<{`\"{@'?:>_.\\$?=_^=\\?&+~~@\"';}`))?(\"$?&$-.",
            104,
        ),
        (
            "NSE-2.0> or the MIT lทรัพยากรของแต่ละรัฐ\nข้อ 24724469912585rrespondence, nor to attacks upon his honour and re",
            67,
        ),
        (
            "A COMMON STANDARD OF ACHIEVEMENT FOR ALL PEOPLES AND ALL NATIONS, TO THE END THAT EVERY INDIVIDUAL AND EVERY ORGAN OF SOCIETY, KEEPING THIS DECLARATIO",
            51,
        ),
        (
            "321416,right,99.67,2026-03-24\n539678,universal,19.53,2026-11-27\n994833,and,31.03,2026-03-06\n325754,clothing,63.48,2026-09-10\n104472,morality,96.11,202",
            80,
        ),
        (
            "| free       | Article    | for        | remunerat  |\n| associati  | resources  | be         | It         |\n| freedom    | English    | the        | g",
            43,
        ),
    ];

    /// Texts, how often they are repeated, and what `o200k_base` and `cl100k_base` make of that.
    fn whole_texts() -> [(&'static str, String, [u64; 2]); 4] {
        let english = "The committee met on Tuesday to discuss the new budget for the coming year. Several members asked why the costs of the building had risen so quickly, and whether the work could be finished before the winter. The chairman explained that the price of steel and timber had nearly doubled since the first estimate was made, and that two of the contractors had left the project in spring. After a long debate it was agreed that the library should be opened in stages: the reading room and the children's section first, and the archive when the remaining money had been found. A small group of volunteers offered to move the books during the summer holidays. The treasurer thanked them and promised to publish a full report of the spending on the website within four weeks. ";
        let code = r##"pub fn longest_run(values: &[u32]) -> Option<(u32, usize)> {
    let mut best: Option<(u32, usize)> = None;
    let mut index = 0;
    while index < values.len() {
        let start = index;
        while index < values.len() && values[index] == values[start] {
            index += 1;
        }
        let length = index - start;
        if best.map_or(true, |(_, longest)| length > longest) {
            best = Some((values[start], length));
        }
    }
    best
}

#[test]
fn finds_the_longest_run() {
    assert_eq!(longest_run(&[]), None);
    assert_eq!(longest_run(&[1, 1, 2, 2, 2, 3]), Some((2, 3)));
}
"##;
        let chinese = "委员会星期二开会讨论了明年的预算。几位成员问为什么这座建筑的费用上涨得这么快，工程能不能在冬天以前完成。主席解释说，自从第一次估算以来，钢材和木材的价格几乎翻了一番，而且有两家承包商在春天退出了项目。经过长时间的辩论，大家同意图书馆分阶段开放：首先是阅览室和儿童区，等找到剩余的资金以后再开放档案室。一小群志愿者提出在暑假期间搬运书籍。司库向他们表示感谢，并答应四周之内在网站上公布完整的支出报告。";
        let letters = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
        let letter = |index: u32| letters[(index.wrapping_mul(2_654_435_761) >> 13 & 63) as usize];
        let base64 = (1..=2000).map(|index| char::from(letter(index))).collect();
        [
            ("English", english.repeat(4), [585, 585]),
            ("code", code.repeat(4), [716, 716]),
            ("Chinese", chinese.repeat(4), [596, 932]),
            ("base64", base64, [1061, 1123]),
        ]
    }

    /// The estimate of a whole request, which token limits use, is not below its count, and the minimum not
    /// above.
    #[test]
    fn requests_are_estimated_within_both_bounds() {
        for (kind, text, [o200k, cl100k]) in whole_texts() {
            // Where places are looked at depends on how a request begins, and on the process.
            let estimate = |model: u32| {
                let content = serde_json::Value::from(text.as_str());
                let body = format!(
                    r#"{{"model":"m{model}","messages":[{{"role":"user","content":{content}}}]}}"#
                );
                TextSize::of_prompt(body.as_bytes()).tokens()
            };
            let mut estimates: Vec<u64> = (0..200).map(estimate).collect();
            estimates.sort_unstable();
            let (low, high) = (estimates[4], estimates[195]);
            let per_cent = |estimate: u64, real: u64| estimate * 100 / real;
            println!(
                "{kind}: {} to {} % of o200k_base, {} to {} % of cl100k_base",
                per_cent(low, o200k),
                per_cent(high, o200k),
                per_cent(low, cl100k),
                per_cent(high, cl100k),
            );
            assert!(least(high) <= o200k.min(cl100k), "{kind}: {high} of {o200k}");
            assert!(low * 10 >= o200k.max(cl100k) * 8, "{kind}: {low} of {cl100k}");
        }
    }

    fn tokens(text: &str) -> u64 {
        TextSize::measure(text.as_bytes()).tokens()
    }

    #[test]
    fn no_kind_of_text_is_estimated_below_its_tokens() {
        for (text, dearest) in SAMPLES {
            let estimate = tokens(text);
            assert!(estimate >= dearest, "{estimate} of {dearest}: {text}");
            assert!(estimate <= dearest * 9 / 5, "{estimate} of {dearest}: {text}");
        }
    }

    fn of_json(json: &str, without_media: bool) -> TextSize {
        let object = Object::parse(json.as_bytes()).expect("JSON");
        TextSize::from_document(&object.decoded_text(without_media))
    }

    #[test]
    fn a_picture_is_no_text() {
        let with = |data: &str| format!(r#"{{"url":"data:image/png;base64,{data}","a":"b"}}"#);
        let picture = with(&"A1b+".repeat(9999));
        assert_eq!(of_json(&picture, true), TextSize::measure(with("").as_bytes()));
        assert!(of_json(&picture, false).tokens() > 9999, "as a text it is one");
        let escaped = picture.replace('+', "\\u002b").replace(":", " :\n");
        let escaped = escaped.replace("data :\n", "data:");
        assert_eq!(of_json(&escaped, true), of_json(&picture, true));
        assert_eq!(
            (tokens(""), TextSize::unread(0).tokens(), TextSize::unread(9).tokens()),
            (0, 0, 5)
        );
    }

    proptest! {
        #[test]
        fn pieces_add_up_to_the_whole(pieces in prop::collection::vec(".{0,12}|[ a-zA-Zж你]{0,9}", 0..9)) {
            let mut sum = TextSize::default();
            for piece in &pieces {
                sum.add(TextSize::measure(piece.as_bytes()));
            }
            let whole = pieces.concat();
            prop_assert_eq!(sum, TextSize::measure(whole.as_bytes()));
            prop_assert_eq!(sum.is_empty(), whole.is_empty());
            prop_assert!(whole.is_empty() || sum.tokens() > 0);
        }

        #[test]
        fn more_text_is_never_fewer_tokens(text in ".{0,40}", more in ".{0,10}") {
            let longer = tokens(&[text.as_str(), more.as_str()].concat());
            prop_assert!(tokens(&text) <= longer);
        }

        #[test]
        fn a_long_prompt_is_measured_by_some_of_it(
            kinds in prop::collection::vec((0..SAMPLES.len(), 1..40_usize), 3..30),
        ) {
            let text: String = kinds.iter().map(|(kind, times)| SAMPLES[*kind].0.repeat(*times)).collect();
            let (whole, some) = (tokens(&text), TextSize::of_prompt(text.as_bytes()).tokens());
            // Of scripts that differ by ten times as here, some places are no exact picture.
            prop_assert!(some * 20 >= whole * 11, "{} of {}", some, whole);
            prop_assert!(some * 20 <= whole * 40, "{} of {}", some, whole);
        }

        /// A place is measured as any text is.
        #[test]
        fn a_place_of_ascii_counts_as_its_text(place in prop::array::uniform16(0_u8..128)) {
            prop_assert_eq!(ascii_place_parts(&place), TextSize::measure(&place).begun());
        }

        #[test]
        fn any_bytes_can_be_measured(bytes in prop::collection::vec(any::<u8>(), 0..40)) {
            let size = TextSize::measure(&bytes);
            prop_assert_eq!(size.is_empty(), bytes.is_empty());
            prop_assert!(size.tokens() <= 5 * bytes.len() as u64);
        }
    }
}
