//! Charges in the columns of FOCUS: they add up to the ledger, and the validator of the specification
//! has nothing against them.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use serde_json::Value;
use tempfile::TempDir;
use tollgate::ledger::{
    AccountId, ExportFormat, Exporter, KeyId, KeyLimits, Ledger, NewKey, OfflineRecords, Options,
    Reserve, VerificationReport, VoidReason, verify,
};
use tollgate::money::Nanousd;

use crate::harness::fleet::{cost, money, reserve};
use crate::harness::python;

/// Names as customers choose them.
const KEY_NAME: &str = "Schlüssel, 1";
const NAME: &str = "Müller & Söhne, „Köln“ \"GmbH\" 北京 =1+1";
/// Rows that the ledger below has: five settlements, one in doubt, and two refunds.
const ROWS: usize = 8;
/// The validator's summary if all checks pass. It omits five: see `tests/focus/overrides.yaml`.
const PASSED: &str = r#"tests="133" failures="0" errors="0" skipped="5""#;

/// A ledger with charges, refunds, a debt, a call that a crash left in doubt, and odd names.
async fn fill(dir: &Path) -> VerificationReport {
    let (ledger, _) = Ledger::open(Options::new(dir)).expect("opens");
    let account = ledger.create_account(NAME).await.expect("an account").id;
    let key = key_of(&ledger, account).await;
    ledger.grant(account, "first", money(1_000_000_007)).await.expect("granted");
    let request = |account, amount| Reserve { key, ..reserve(account, amount) };
    let post = |hold: i64, charge| {
        let hold = ledger.reserve(request(account, hold)).expect("a hold");
        let id = hold.id();
        hold.post(cost(charge));
        id
    };
    let first = post(300, 123);
    post(1, 0);
    let second = post(2_000, 1_777);
    ledger.refund(account, "Gutschrift 1", first, money(23)).await.expect("refunded");
    ledger.refund(account, "r2", second, money(1)).await.expect("refunded");
    ledger.reserve(request(account, 5)).expect("a hold").void(VoidReason::Unreached);
    let other = ledger.create_account("NA").await.expect("an account").id;
    ledger.grant(other, "first", money(500)).await.expect("granted");
    // More than there is: 200 are owed, a part is paid, a part is given up.
    let key_of_other = key_of(&ledger, other).await;
    let hold = Reserve { key: key_of_other, ..reserve(other, 100) };
    ledger.reserve(hold).expect("a hold").post(cost(700));
    ledger.grant(other, "second", money(150)).await.expect("granted");
    let actor = tollgate::ledger::Actor::Gateway;
    ledger.by(&actor).write_off(other, "w", money(50), "agreed").await.expect("given up");
    post(77, 77);
    leave_in_doubt(ledger, dir, request(account, 400)).await
}

async fn key_of(ledger: &Arc<Ledger>, account: AccountId) -> KeyId {
    let (models, expires_at, limits) = (None, None, KeyLimits::default());
    let new = NewKey { name: KEY_NAME.into(), models, expires_at, limits };
    ledger.create_key(account, new).await.expect("a key").1.id
}

/// Ends the process's ledger as a crash does: a hold is open, and is recovered at the next start.
async fn leave_in_doubt(
    ledger: Arc<Ledger>,
    dir: &Path,
    reservation: Reserve,
) -> VerificationReport {
    let hold = ledger.reserve(Reserve { floor: money(11), ..reservation }).expect("a hold");
    hold.durable().await.expect("durable");
    let crashed = TempDir::new().expect("a directory");
    crate::harness::ledger::copy(&dir.join("."), crashed.path());
    hold.void(VoidReason::Abandoned);
    ledger.close();
    drop(ledger);
    std::fs::remove_dir_all(dir).expect("removed");
    crate::harness::ledger::copy(&crashed.path().join("."), dir);
    let recovery = tollgate::ledger::RecoveryPolicy::Floor;
    let options = Options { recovery, accept_fork: true, ..Options::new(dir) };
    let (ledger, _) = Ledger::open(options).expect("opens after the crash");
    ledger.close();
    drop(ledger);
    let report = verify(dir).expect("readable");
    assert_eq!(report.violations, [""; 0]);
    report
}

/// Revenue in the books.
fn revenue(report: &VerificationReport) -> i128 {
    let line = report.books.lines.iter().find(|line| line.account == "revenue").expect("revenue");
    assert!(line.debit.is_zero(), "{line:?}");
    i128::from(line.credit.get())
}

/// Dollars in nano-dollars, below zero as well.
fn nanousd(text: &str) -> i128 {
    let (sign, text) = text.strip_prefix('-').map_or((1, text), |text| (-1, text));
    sign * i128::from(text.parse::<Nanousd>().expect("an amount").get())
}

fn rows(csv: &[u8]) -> Vec<std::collections::BTreeMap<String, String>> {
    let mut reader = csv::Reader::from_reader(csv);
    reader.deserialize().map(|row| row.expect("a row")).collect()
}

fn export(dir: &Path, more: &[&str]) -> Vec<u8> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tollgate"));
    command.args(["ledger", "export", "--format", "focus", "--data"]).arg(dir).args(more);
    let output = command.output().expect("the binary runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    output.stdout
}

#[tokio::test(flavor = "multi_thread")]
async fn focus_adds_up_to_the_ledger_and_the_validator_agrees() {
    let dir = TempDir::new().expect("a directory");
    let report = fill(dir.path()).await;
    let csv = export(dir.path(), &[]);
    let found = rows(&csv);
    assert_eq!(found.len(), ROWS, "{}", String::from_utf8_lossy(&csv));
    for column in ["BilledCost", "EffectiveCost", "ListCost", "ContractedCost"] {
        let sum: i128 = found.iter().map(|row| nanousd(&row[column])).sum();
        assert_eq!(sum, revenue(&report), "{column}");
    }
    let names: BTreeSet<&str> = found.iter().map(|row| &*row["SubAccountName"]).collect();
    assert_eq!(names, BTreeSet::from([NAME, "NA"]));
    let owing = found.iter().find(|row| row["SubAccountName"] == "NA").expect("one that owes");
    assert_eq!(owing["BilledCost"], "0.0000007", "what is owed is billed");
    for row in &found {
        let tags: Value = serde_json::from_str(&row["Tags"]).expect("JSON");
        // What the validator does not know by these names.
        for column in ["ProviderName", "PublisherName", "InvoiceIssuerName"] {
            assert_eq!(row[column], "Tollgate", "{column}");
        }
        let is_refund = row["ChargeCategory"] == "Credit";
        assert!(tags["hold"].is_string(), "{row:?}");
        assert_eq!(tags["request_id"].is_string(), !is_refund, "{row:?}");
        assert_eq!(row["SkuId"], if is_refund { "" } else { "model-a" }, "{row:?}");
        assert_eq!(row["SkuPriceId"], row["SkuId"]);
        assert_eq!(row["ResourceId"].starts_with("key_"), !is_refund, "{row:?}");
        assert_eq!(row["ResourceName"], if is_refund { "" } else { KEY_NAME }, "{row:?}");
        assert!(row["ChargePeriodStart"] < row["ChargePeriodEnd"], "{row:?}");
        assert!(row["BillingPeriodStart"] <= row["ChargePeriodStart"], "{row:?}");
        assert!(row["ChargePeriodEnd"] <= row["BillingPeriodEnd"], "{row:?}");
    }

    let path = dir.path().join("focus.csv");
    std::fs::write(&path, &csv).expect("written");
    let message = validate(&path);
    assert!(message.contains(PASSED), "{message}");
    // Were the validator content with anything, it would say nothing of ours.
    let text = String::from_utf8(csv).expect("text").replace("USD", "usd").replace("AI and ", "");
    std::fs::write(&path, text).expect("written");
    let message = validate(&path);
    for rule in ["BillingCurrency_IsCurrencyCode", "ServiceCategory_Enum"] {
        assert!(message.contains(rule) && message.contains(r#"failures="2""#), "{rule}: {message}");
    }
}

/// Runs the validator, which finds its list of currencies below where it stands, and fetches nothing.
/// Gives what it says of its checks.
fn validate(csv: &Path) -> String {
    let venv = python::environment_of("focus-venv", "tests/focus/requirements.txt");
    let home = std::fs::read_dir(venv.join("lib")).expect("the environment").next();
    let home = home.expect("a Python").expect("an entry").path().join("site-packages");
    let overrides = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/focus/overrides.yaml");
    let message = csv.with_extension("xml");
    let output = Command::new(venv.join("bin/focus-validator"))
        .args(["--validate-version", "1.0", "--output-type", "unittest", "--data-file"])
        .arg(csv)
        .arg("--override-file")
        .arg(overrides)
        .arg("--output-destination")
        .arg(&message)
        .current_dir(home)
        .output()
        .expect("the validator runs");
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    std::fs::read_to_string(&message).unwrap_or_else(|error| panic!("{error}: {text}"))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_part_of_the_charges_knows_what_was_before() {
    let dir = TempDir::new().expect("a directory");
    fill(dir.path()).await;
    let whole = rows(&export(dir.path(), &[]));
    let last = whole.last().expect("rows");
    let rest = rows(&export(dir.path(), &["--from-seq", &last["x_Seq"]]));
    assert_eq!(rest, std::slice::from_ref(last), "its hold stands before");
    let own = rows(&export(dir.path(), &["--account", &last["SubAccountId"]]));
    let expected: Vec<_> =
        whole.iter().filter(|row| row["SubAccountId"] == last["SubAccountId"]).cloned().collect();
    assert_eq!(own, expected);
    let account: AccountId = last["SubAccountId"].parse().expect("an id");
    let mut exporter = Exporter::new(ExportFormat::Focus, Some(account), 0);
    let mut text = exporter.head();
    for record in OfflineRecords::open(dir.path(), 0).expect("opens") {
        let (seq, record) = record.expect("readable");
        text.extend(exporter.line(seq, &record));
    }
    assert_eq!(rows(&text), own, "the library and the command say the same");
}
