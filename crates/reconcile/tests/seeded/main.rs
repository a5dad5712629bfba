//! Simulated invoices: one derived from a journal agrees with it, and each seeded error gets its class.

#![allow(missing_docs, reason = "a binary of tests")]

mod formats;

use std::collections::BTreeMap;

use fastrand::Rng;
use tollgate_money::money::{Charge, Nanousd, Rate};
use tollgate_money::price::{Unit, Usage};

use self::formats::date;
use tollgate_reconcile::{
    CredentialNames, Day, DifferenceClass, Femtousd, OwnKind, OwnLine, Provider, Reconciliation,
    StatementFile, StatementKey, read, reconcile,
};

/// Largest difference that counts as agreement: a micro-dollar.
const TOLERANCE: Femtousd = Femtousd::new(1_000_000_000);
/// Journals generated for each format.
const ROUNDS: u64 = 25;
const MODELS: [&str; 2] = ["small-4", "large-4"];
const CREDENTIALS: [&str; 2] = ["main", "spare"];
const DAYS: u32 = 10;
/// 2026-01-28: the invoice is of two months.
const FIRST_DAY: u32 = 20_481;
const UNITS: [Unit; 5] = [
    Unit::InputTokens,
    Unit::CacheReadTokens,
    Unit::CacheWriteTokens,
    Unit::CacheWrite1hTokens,
    Unit::OutputTokens,
];
/// Femto-dollars for each unit; some are no whole nano-dollars.
const RATES: [[i64; UNITS.len()]; MODELS.len()] = [
    [37_500_000, 3_750_000, 46_875_000, 75_000_000, 150_000_000],
    [2_500_000_000, 250_000_000, 3_125_000_000, 5_000_000_000, 10_000_000_001],
];

/// An error of an invoice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Seed {
    Price,
    Unit,
    Tail,
    Retry,
    ForeignKey,
    ForeignCalls,
    Lag,
}

/// Invoice line of one day, model and credential.
#[derive(Clone, Debug, Default)]
struct Bill {
    counts: [u64; UNITS.len()],
    calls: u64,
    /// The percentage of the usual price.
    percent: i128,
}

type BillKey = (u32, String, String);

/// A journal, and the invoice for it.
struct Simulation {
    rng: Rng,
    own: Vec<OwnLine>,
    bills: BTreeMap<BillKey, Bill>,
}

fn cost(model: usize, usage: &Usage) -> Nanousd {
    let units = UNITS.iter().zip(RATES[model]);
    let charge = units.fold(Charge::default(), |sum, (unit, rate)| {
        sum.plus(usage[*unit], Rate::from_femtousd(rate))
    });
    charge.round_up()
}

impl Bill {
    fn add(&mut self, usage: &Usage) {
        for (count, unit) in self.counts.iter_mut().zip(UNITS) {
            *count += usage[unit];
        }
        self.calls += 1;
    }

    fn take(&mut self, usage: &Usage) {
        for (count, unit) in self.counts.iter_mut().zip(UNITS) {
            *count -= usage[unit];
        }
        self.calls -= 1;
    }

    fn amount(&self, model: &str) -> Femtousd {
        let model = usize::from(model == MODELS[1]);
        let counts = self.counts.iter().zip(RATES[model]);
        let sum: i128 = counts.map(|(count, rate)| i128::from(*count) * i128::from(rate)).sum();
        Femtousd::new(sum * self.percent / 100)
    }
}

impl Simulation {
    fn new(seed: u64, provider: Provider) -> Self {
        let mut rng = Rng::with_seed(seed);
        let (mut own, mut bills) = (Vec::new(), BTreeMap::new());
        for day in FIRST_DAY..FIRST_DAY + DAYS {
            for (number, model) in MODELS.iter().enumerate() {
                for credential in CREDENTIALS {
                    let bill: &mut Bill =
                        bills.entry((day, (*model).to_owned(), credential.to_owned())).or_default();
                    bill.percent = 100;
                    for _ in 0..rng.u32(2..40) {
                        let mut usage = Usage::ZERO;
                        usage.input_tokens = rng.u64(1_000..50_000);
                        usage.cache_read_tokens = rng.u64(1_000..9_000);
                        usage.output_tokens = rng.u64(100..4_000);
                        if provider != Provider::OpenAi && rng.bool() {
                            usage.cache_write_tokens = rng.u64(0..5_000);
                            usage.cache_write_1h_tokens = rng.u64(0..5_000);
                        }
                        bill.add(&usage);
                        own.push(OwnLine {
                            day: Day::from_number(day).expect("a day"),
                            began: Day::from_number(day).expect("a day"),
                            upstream: "there".to_owned(),
                            credential: credential.to_owned(),
                            model: (*model).to_owned(),
                            kind: OwnKind::Answer,
                            is_estimated: false,
                            calls: 1,
                            usage,
                            cost: cost(number, &usage),
                            loss: Nanousd::ZERO,
                        });
                    }
                }
            }
        }
        Self { rng, own, bills }
    }

    /// Seeds an error, and gives the class that it should get.
    fn seed(&mut self, seed: Seed, day: u32, model: usize, provider: Provider) -> DifferenceClass {
        let credential = CREDENTIALS[self.rng.usize(0..CREDENTIALS.len())];
        let name = MODELS[model].to_owned();
        let key = (day, name.clone(), credential.to_owned());
        let is_of_cell = |line: &OwnLine| {
            Day::from_number(day) == Some(line.day)
                && line.model == MODELS[model]
                && line.credential == credential
        };
        let cell: Vec<usize> =
            (0..self.own.len()).filter(|index| is_of_cell(&self.own[*index])).collect();
        let index = cell[self.rng.usize(0..cell.len())];
        let line = self.own[index].clone();
        let more = self.rng.u64(500..3_000);
        let bill = self.bills.get_mut(&key).expect("the cell is billed");
        match seed {
            Seed::Price => {
                bill.percent = 110;
                DifferenceClass::Price
            }
            Seed::Unit => {
                bill.counts[0] += std::mem::take(&mut bill.counts[1]);
                DifferenceClass::Unit
            }
            Seed::Tail => {
                // The gateway has seen the beginning of the answer only.
                bill.counts[4] += more;
                self.own[index].is_estimated = true;
                DifferenceClass::Tail
            }
            Seed::Retry => {
                let mut retry = OwnLine { kind: OwnKind::Retry, is_estimated: true, ..line };
                retry.usage.output_tokens = 8_000;
                retry.cost = cost(model, &retry.usage);
                self.own.push(retry);
                DifferenceClass::Retry
            }
            Seed::ForeignKey => {
                let foreign = Bill { counts: [900, 0, 0, 0, more], calls: 2, percent: 100 };
                let key = match provider {
                    Provider::OpenRouter => (day, "stranger-1".to_owned(), credential.to_owned()),
                    _ => (day, name, "stranger".to_owned()),
                };
                self.bills.insert(key, foreign);
                DifferenceClass::Elsewhere
            }
            Seed::ForeignCalls => {
                bill.counts[0] += 2 * more;
                bill.counts[4] += more;
                bill.calls += 2;
                DifferenceClass::Elsewhere
            }
            Seed::Lag => {
                bill.take(&line.usage);
                let next = (day + 1, key.1, key.2);
                self.bills.get_mut(&next).expect("the next day is billed").add(&line.usage);
                DifferenceClass::Lag
            }
        }
    }

    fn reconcile(&self, provider: Provider) -> Reconciliation {
        let texts = self.files(provider);
        let files: Vec<_> =
            texts.iter().map(|text| StatementFile { name: "f", bytes: text.as_bytes() }).collect();
        let statement = read(provider, &files).expect("the invoice can be read");
        let credentials = CREDENTIALS.map(|name| (format!("key_{name}"), name.to_owned()));
        reconcile(&self.own, &statement, &CredentialNames::from(credentials))
    }
}

/// The errors that a format shows. OpenRouter has prompts as a whole, and Anthropic counts no requests.
fn seeds(provider: Provider) -> Vec<Seed> {
    let mut seeds = vec![Seed::Price, Seed::Tail, Seed::Retry, Seed::ForeignKey, Seed::Lag];
    if provider != Provider::OpenRouter {
        seeds.push(Seed::Unit);
    }
    if provider != Provider::Anthropic {
        seeds.push(Seed::ForeignCalls);
    }
    seeds
}

const PROVIDERS: [Provider; 4] =
    [Provider::OpenAi, Provider::Anthropic, Provider::OpenRouter, Provider::Csv];

#[test]
fn an_invoice_without_errors_agrees() {
    for provider in PROVIDERS {
        for seed in 0..ROUNDS {
            let report = Simulation::new(seed, provider).reconcile(provider);
            println!("{provider:?}, seed {seed}: {} lines agree", report.agreeing);
            assert!(!report.is_different(), "{provider:?}, seed {seed}: {report:#?}");
            assert!(report.rest_max < TOLERANCE, "{provider:?}, seed {seed}: {}", report.rest_max);
            assert!(report.agreeing >= 60 && report.skipped.is_empty(), "{provider:?}: {report:?}");
        }
    }
}

#[test]
fn each_seeded_error_gets_its_class() {
    let mut found: BTreeMap<&str, usize> = BTreeMap::new();
    for provider in PROVIDERS {
        for seed in 0..ROUNDS {
            let mut simulation = Simulation::new(seed, provider);
            // Each has two days of a model for itself.
            let mut slots: Vec<_> =
                (0..DAYS / 2).flat_map(|slot| [(slot, 0_usize), (slot, 1)]).collect();
            simulation.rng.shuffle(&mut slots);
            let mut expected = BTreeMap::new();
            for (kind, (slot, model)) in seeds(provider).into_iter().zip(slots) {
                let day = FIRST_DAY + 2 * slot;
                let class = simulation.seed(kind, day, model, provider);
                let is_stranger = kind == Seed::ForeignKey && provider == Provider::OpenRouter;
                let name = if is_stranger { "stranger-1" } else { MODELS[model] };
                expected.insert((date(day), name.to_owned()), class);
                if kind == Seed::Lag {
                    expected.insert((date(day + 1), name.to_owned()), class);
                }
            }
            let report = simulation.reconcile(provider);
            println!("{provider:?}, seed {seed}: {:?}", report.totals());
            let quantities = report.quantities.iter().map(|line| (&line.key, line.class));
            let amounts = report.amounts.iter().map(|line| (&line.key, line.class));
            for (key, class) in quantities.chain(amounts) {
                let model = key.model.clone().unwrap_or_default();
                let model = model.trim_end_matches("-2025-08-07").to_owned();
                let expected = expected.get(&(key.day.to_string(), model));
                assert_eq!(Some(&class), expected, "{provider:?}, seed {seed}: {key:?}");
                *found.entry(class.as_str()).or_default() += 1;
            }
            for ((day, model), class) in &expected {
                let is_it = |key: &StatementKey| {
                    key.day.to_string() == *day
                        && key.model.as_ref().is_some_and(|own| own.starts_with(model))
                };
                let amount = report.amounts.iter().any(|line| is_it(&line.key));
                let quantity = report.quantities.iter().any(|line| is_it(&line.key));
                assert!(
                    amount,
                    "{provider:?}, seed {seed}: {class:?} on {day} of {model}: no amount"
                );
                assert_eq!(
                    quantity,
                    *class != DifferenceClass::Price,
                    "{provider:?}, seed {seed}: {class:?} on {day} of {model}: quantities"
                );
            }
            assert!(report.rest_max < TOLERANCE, "{provider:?}, seed {seed}: {}", report.rest_max);
        }
    }
    println!("{found:?}");
    let classes: Vec<_> = found.keys().copied().collect();
    assert_eq!(classes, ["elsewhere", "lag", "price", "retry", "tail", "unit"]);
}
