use proptest::prelude::*;

use super::*;
use crate::json::Object;

/// Samples of many kinds of text with the number of tokens in the most expensive of four vocabularies.
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
    assert_eq!((tokens(""), TextSize::unread(0).tokens(), TextSize::unread(9).tokens()), (0, 0, 5));
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
