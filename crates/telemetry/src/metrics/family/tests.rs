use std::collections::HashMap;

use prometheus::TextEncoder;

use super::*;

const BOUNDS: [f64; 5] = [0.005, 0.25, 1.0, 10.0, 300.0];
const LABELS: [&str; 4] = ["model", "code", "upstream", "a"];
/// Values that sort, escape or join in other ways than plain words.
const VALUES: [&str; 12] =
    ["", "m", "m ", "m!", "m\"", "m/1", "é", "\\", "a\nb", "\u{1}", "zz", "{x=\"1\"}"];

/// The `prometheus` crate writes what this module must write, byte for byte.
#[test]
fn random_series_are_written_like_the_oracle_writes_them() {
    let seed = fastrand::u64(..);
    let mut random = fastrand::Rng::with_seed(seed);
    for round in 0..200 {
        let (registry, oracle) = (Registry::default(), prometheus::Registry::new());
        for number in 0..random.usize(1..6) {
            family(&mut random, number, &registry, &oracle);
        }
        let expected = TextEncoder::new().encode_to_string(&oracle.gather()).expect("text");
        assert_eq!(registry.encode(), expected, "seed {seed}, round {round}");
    }
}

/// Makes a random family with random series on both sides.
fn family(
    random: &mut fastrand::Rng,
    number: usize,
    registry: &Registry,
    oracle: &prometheus::Registry,
) {
    let mut labels = LABELS.to_vec();
    random.shuffle(&mut labels);
    labels.truncate(random.usize(0..=LABELS.len()));
    // Registered in no order, shown in that of their names.
    let name: &'static str = format!("f{}_{number}", random.u32(..100)).leak();
    let help = VALUES[random.usize(1..VALUES.len())];
    let opts = prometheus::Opts::new(name, help);
    let add = |made: Box<dyn prometheus::core::Collector>| oracle.register(made).expect("valid");
    let mut series: Vec<Vec<&str>> = (0..random.usize(0..8))
        .map(|_| labels.iter().map(|_| VALUES[random.usize(..VALUES.len())]).collect())
        .collect();
    // The oracle takes series for one whose values are the same text one after another, such as `a`, `bc` and
    // `ab`, `c`.
    let mut texts = HashMap::new();
    series.retain(|values| *texts.entry(values.concat()).or_insert(values.clone()) == *values);
    match random.u8(..5) {
        0 => {
            let own = MetricFamily::<IntCounter>::new(name, help, &labels, ());
            let other = prometheus::IntCounterVec::new(opts, &labels).expect("valid");
            registry.add(&own);
            add(Box::new(other.clone()));
            for values in series {
                let count = random.u64(..) >> random.u32(..64);
                own.with_label_values(&values).inc_by(count / 16);
                other.with_label_values(&values).inc_by(count / 16);
            }
        }
        1 => {
            let own = MetricFamily::<FloatCounter>::new(name, help, &labels, ());
            let other = prometheus::CounterVec::new(opts, &labels).expect("valid");
            registry.add(&own);
            add(Box::new(other.clone()));
            for values in series {
                let amount = f64::from(random.u32(..) >> random.u32(..32)) / 1e9;
                own.with_label_values(&values).inc_by(amount);
                other.with_label_values(&values).inc_by(amount);
            }
        }
        2 => {
            let own = MetricFamily::<IntGauge>::new(name, help, &labels, ());
            let other = prometheus::IntGaugeVec::new(opts, &labels).expect("valid");
            registry.add(&own);
            add(Box::new(other.clone()));
            for values in series {
                let value = random.i64(..) >> random.u32(..64);
                own.with_label_values(&values).set(value);
                other.with_label_values(&values).set(value);
            }
        }
        3 => {
            let own = MetricFamily::<FloatGauge>::new(name, help, &labels, ());
            let other = prometheus::GaugeVec::new(opts, &labels).expect("valid");
            registry.add(&own);
            add(Box::new(other.clone()));
            for values in series {
                let value = (random.f64() - 0.5) * 10_f64.powi(random.i32(-12..12));
                own.with_label_values(&values).set(value);
                other.with_label_values(&values).set(value);
            }
        }
        _ => {
            let own =
                MetricFamily::<Histogram>::new(name, help, &labels, HistogramBuckets::new(&BOUNDS));
            let opts = prometheus::HistogramOpts::from(opts).buckets(BOUNDS.to_vec());
            let other = prometheus::HistogramVec::new(opts, &labels).expect("valid");
            registry.add(&own);
            add(Box::new(other.clone()));
            for values in series {
                // On the bounds, between them and beyond the last.
                let value = match random.bool() {
                    true => BOUNDS[random.usize(..BOUNDS.len())],
                    false => random.f64() * 1000.0,
                };
                own.with_label_values(&values).observe(value);
                other.with_label_values(&values).observe(value);
            }
        }
    }
}

#[test]
fn counts_of_many_threads_are_exact() {
    let family = MetricFamily::<FloatCounter>::new("dollars", "help", &["model"], ());
    let counts =
        MetricFamily::<Histogram>::new("times", "help", &[], HistogramBuckets::new(&BOUNDS));
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let (family, counts) = (family.clone(), counts.clone());
            scope.spawn(move || {
                for round in 0..10_000 {
                    // A new handle each time: that it is the same series is part of the promise.
                    family.with_label_values(&[format!("m{}", round % 3)]).inc_by(0.25);
                    counts.with_label_values::<&str>(&[]).observe(f64::from(thread));
                }
            });
        }
    });
    let mut sum = 0.0;
    family.for_each(|_, counter| sum += counter.get());
    assert!((sum - 10_000.0).abs() < f64::EPSILON, "{sum}");
    let seen: u64 = counts.with_label_values::<&str>(&[]).counts().sum();
    assert_eq!(seen, 40_000);
}

#[test]
fn series_whose_values_are_one_text_are_two() {
    let (registry, family) =
        (Registry::default(), MetricFamily::<IntCounter>::new("f", "help", &["a", "b"], ()));
    registry.add(&family);
    family.with_label_values(&["a", "bc"]).inc();
    family.with_label_values(&["ab", "c"]).inc_by(2);
    let text = registry.encode();
    assert!(text.ends_with("f{a=\"a\",b=\"bc\"} 1\nf{a=\"ab\",b=\"c\"} 2\n"), "{text}");
}

#[test]
fn values_are_found_by_the_names_of_their_labels() {
    let family = MetricFamily::<IntCounter>::new("f", "help", &["route", "code", "model"], ());
    family.with_label_values(&["/a", "", "m"]).inc();
    family.for_each(|labels, counter| {
        assert_eq!((labels.get("route"), labels.get("code"), labels.get("model")), ("/a", "", "m"));
        assert_eq!((labels.get("other"), counter.get()), ("", 1));
    });
    family.reset();
    family.for_each(|_, _| panic!("no series is left"));
}
