//! Reconciliation of a statement with the journal.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use crate::amount::Femtousd;
use crate::classify::{
    AmountGroup, QuantityGroup, classify_quantities, is_agreement, lagging_amounts,
};
use crate::day::Day;
use crate::names::{GroupBy, SharedNames};
use crate::own::OwnLine;
use crate::report::{DifferenceClass, MoneyLine, QuantityLine, Reconciliation, StatementKey};
use crate::statement::{BilledStatement, Measure};

/// The provider's ids of credentials and projects, each with the name of ours that it is. A credential
/// without a name has that of its upstream.
pub type CredentialNames = BTreeMap<String, String>;

/// Holds a statement against the journal, by UTC day, model and credential: quantities by unit exactly,
/// amounts up to a micro-dollar and a nano-dollar for each call, by which a call's cost is rounded up.
/// Only days of the statement are compared. Where the statement does not tell models or credentials
/// apart, or no id of it stands for a credential of ours, they are added up.
///
/// A quantity that differs has the first of these classes that fits:
///
/// 1. `elsewhere`: we have never used the model or the credential.
/// 2. `unit`: all input tokens together are as many on both sides, or all output tokens, or all tokens.
/// 3. `lag`: it is what our calls explain that went over midnight, as those that began on the day and were
///    settled later, less those that were settled on it and began earlier; or the differences of up to
///    seven consecutive days come to zero.
/// 4. `retry`: all tokens of its side together are fewer than ours, by at most what tries have that were
///    followed by others, and no unit has less than the provider has said itself.
/// 5. `elsewhere`: more than ours, in more requests than ours. Estimated answers and tries that were
///    followed by others are among ours.
/// 6. `tail`: we have estimated answers, and no unit of the side has less than the provider has said
///    itself.
/// 7. `unknown`.
///
/// The number of requests is compared where all else agrees: it is `elsewhere` where the provider has
/// more, `lag` as above, and `retry` where it has fewer by at most the tries that were followed by others.
/// More requests are no difference where ours have used input alone: an array that is embedded in parts
/// is one call of ours.
///
/// An amount that differs has the class of the quantities that it is for: `price` where all agree and
/// count all that we have used. By itself it is `retry` where it is less by at most what such tries
/// cost, `elsewhere` where it is more in more requests than ours, and `tail` where we have estimated
/// answers and it is at least what all other calls cost; that chooses where the quantities have several
/// classes. Where the statement has no quantities for it, it is `elsewhere` and `lag` by the rules above,
/// one of those three by itself, or else `unknown`: without quantities nobody can tell a price.
///
/// Fees of searches and other tools are a part of what a model costs on our side, and often of no model on
/// the provider's. Amounts of models that have used tools, and would be `price` or `unknown`, are held
/// against the provider's with what it has billed by that day and no model: together they may agree.
#[must_use]
pub fn reconcile(
    own: &[OwnLine],
    statement: &BilledStatement,
    credentials: &CredentialNames,
) -> Reconciliation {
    let names = SharedNames::new(own, credentials);
    let mut report = Reconciliation { notes: statement.notes.clone(), ..Reconciliation::default() };
    for line in &statement.unused {
        report.skip(&line.what, line.amount);
    }
    let days = |line: &OwnLine| {
        [&statement.quantity_days, &statement.amount_days]
            .iter()
            .any(|days| days.contains(&line.day))
    };
    for line in own.iter().filter(|line| !days(line)) {
        let what = "calls of ours on days that the statement does not have";
        report.skip_lines(what, line.calls, line.cost.into());
    }
    note_unused_credentials(own, statement, credentials, &mut report);
    let quantities = compare_quantities(own, statement, &names, &mut report);
    compare_amounts(own, statement, &names, &quantities, &mut report);
    report
}

/// Group and classify the quantities of the statement and of the journal.
fn compare_quantities(
    own: &[OwnLine],
    statement: &BilledStatement,
    names: &SharedNames<'_>,
    report: &mut Reconciliation,
) -> BTreeMap<StatementKey, QuantityGroup> {
    let keys = statement.quantities.iter().map(|line| &line.key);
    let grain = names.grain(keys.chain(statement.calls.iter().map(|line| &line.key)));
    let mut groups: BTreeMap<StatementKey, QuantityGroup> = BTreeMap::new();
    for line in &statement.quantities {
        let Some(resolved) = names.resolve(&line.key, grain) else {
            report.skip("quantities without a model", Femtousd::ZERO);
            continue;
        };
        let group = groups.entry(resolved.key).or_default();
        group.is_foreign |= resolved.is_foreign;
        let sum = group.theirs.entry(line.measure).or_default();
        *sum = sum.saturating_add(i128::from(line.count));
    }
    for line in &statement.calls {
        let Some(resolved) = names.resolve(&line.key, grain) else { continue };
        let group = groups.entry(resolved.key).or_default();
        group.is_foreign |= resolved.is_foreign;
        let calls = group.calls.get_or_insert_default();
        *calls = calls.saturating_add(i128::from(line.count));
    }
    let billed: BTreeSet<_> = groups.keys().map(|key| key.model.clone()).collect();
    for line in own.iter().filter(|line| statement.quantity_days.contains(&line.day)) {
        let key = names.own_key(line, grain);
        if statement.is_partial && !billed.contains(&key.model) {
            let model = &line.model;
            report.skip(
                format!("the model {model}: the usage export has none of it"),
                line.cost.into(),
            );
            continue;
        }
        groups.entry(key).or_default().own.add(line);
    }
    let days = &statement.quantity_days;
    for (key, line, is_end) in over_midnight(own, days, names, grain) {
        if let Some(group) = groups.get_mut(&key) {
            group.shift.add_or_take(line, is_end);
        }
    }
    set_measures(&mut groups, statement, names, grain);
    classify_quantities(&mut groups);
    for (key, group) in &groups {
        let used = group.measures.iter().filter(|measure| {
            group.theirs.contains_key(measure) || group.own.total(**measure) != 0
        });
        let used = used.chain(group.calls.as_ref().map(|_| &Measure::Calls));
        let is_equal = group.differences.is_empty();
        let used = used.filter(|measure| is_equal || **measure != Measure::Calls);
        let agreeing = used.filter(|measure| !group.differences.contains_key(measure)).count();
        report.agreeing =
            report.agreeing.saturating_add(u64::try_from(agreeing).unwrap_or(u64::MAX));
        for (measure, difference) in &group.differences {
            report.quantities.push(QuantityLine {
                key: key.clone(),
                measure: *measure,
                theirs: group.their_count(*measure),
                ours: group.own.total(*measure),
                class: difference.class.unwrap_or(DifferenceClass::Unknown),
            });
        }
    }
    note_grain(grain, !groups.is_empty(), "quantities", report);
    groups
}

/// Provider's fees by day: description and amount.
type DayFees = BTreeMap<Day, Vec<(String, Femtousd)>>;

fn compare_amounts(
    own: &[OwnLine],
    statement: &BilledStatement,
    names: &SharedNames<'_>,
    quantities: &BTreeMap<StatementKey, QuantityGroup>,
    report: &mut Reconciliation,
) {
    let grain = names.grain(statement.amounts.iter().map(|line| &line.key));
    let mut fees = DayFees::new();
    for fee in &statement.fees {
        fees.entry(fee.day).or_default().push((fee.what.clone(), fee.amount));
    }
    let groups = group_amounts(own, statement, names, grain, &mut fees);
    note_grain(grain, !groups.is_empty(), "amounts", report);
    let is_alone = |key: &StatementKey| is_without_quantities(key, quantities);
    let differing = groups.iter().filter(|(key, group)| !group.agrees() && is_alone(key));
    let lagging = lagging_amounts(differing.filter(|(_, group)| !group.is_foreign));
    let mut with_tools: BTreeMap<Day, Vec<(i128, MoneyLine)>> = BTreeMap::new();
    for (key, group) in groups {
        if group.agrees() {
            report.agreeing = report.agreeing.saturating_add(1);
            report.rest_max = report.rest_max.max(group.difference().magnitude());
            continue;
        }
        let because = classes_behind(&key, quantities);
        let class = amount_class(&key, &group, &because, lagging.contains(&key), quantities);
        let has_price = matches!(class, DifferenceClass::Price | DifferenceClass::Unknown);
        let is_by_day = has_price && because.is_empty() && group.own.has_tools();
        let AmountGroup { theirs, items, own, .. } = group;
        let (day, ours, losses) = (key.day, own.cost, own.loss);
        let line = MoneyLine { key, theirs, items, ours, losses, class, because };
        if is_by_day && fees.contains_key(&day) {
            with_tools.entry(day).or_default().push((own.calls, line));
        } else {
            report.amounts.push(line);
        }
    }
    compare_by_day(with_tools, &mut fees, report);
    report.amounts.sort_by(|one, other| one.key.cmp(&other.key));
    for (what, amount) in fees.into_values().flatten() {
        report.skip(what, amount);
    }
}

/// Group the amounts of the statement and of the journal. A line without a model among lines with one is
/// a fee of its day.
fn group_amounts(
    own: &[OwnLine],
    statement: &BilledStatement,
    names: &SharedNames<'_>,
    grain: GroupBy,
    fees: &mut DayFees,
) -> BTreeMap<StatementKey, AmountGroup> {
    let mut groups: BTreeMap<StatementKey, AmountGroup> = BTreeMap::new();
    for line in &statement.amounts {
        let Some(resolved) = names.resolve(&line.key, grain) else {
            let fee = ("amounts without a model".to_owned(), line.amount);
            fees.entry(line.key.day).or_default().push(fee);
            continue;
        };
        let group = groups.entry(resolved.key).or_default();
        group.is_foreign |= resolved.is_foreign;
        group.theirs = group.theirs.plus(line.amount);
        if let Some(item) = &line.item {
            let sum = group.items.entry(item.clone()).or_default();
            *sum = sum.plus(line.amount);
        }
    }
    for line in own.iter().filter(|line| statement.amount_days.contains(&line.day)) {
        groups.entry(names.own_key(line, grain)).or_default().own.add(line);
    }
    for (key, line, is_end) in over_midnight(own, &statement.amount_days, names, grain) {
        if let Some(group) = groups.get_mut(&key) {
            group.shift.add_or_take(line, is_end);
        }
    }
    groups
}

/// Class of an amount difference, given the classes of its quantities and whether other days reverse it.
fn amount_class(
    key: &StatementKey,
    group: &AmountGroup,
    because: &BTreeSet<DifferenceClass>,
    is_lagging: bool,
    quantities: &BTreeMap<StatementKey, QuantityGroup>,
) -> DifferenceClass {
    let alone = || group.class_alone(has_more_calls(key, quantities));
    if group.is_foreign {
        DifferenceClass::Elsewhere
    } else if let Some(first) = because.first() {
        match because.len() {
            1 => *first,
            _ if because.contains(&alone()) => alone(),
            _ => DifferenceClass::Unknown,
        }
    } else if is_lagging {
        DifferenceClass::Lag
    } else if is_without_quantities(key, quantities) {
        alone()
    } else if group.own.has_more_than(&measures_within(key, quantities)) {
        DifferenceClass::Unknown
    } else {
        DifferenceClass::Price
    }
}

/// Holds the fees of a day, such as those of searches, against the amounts that have them on our side:
/// ours are a part of what the model cost. They agree together, or each differs by itself.
fn compare_by_day(
    with_tools: BTreeMap<Day, Vec<(i128, MoneyLine)>>,
    fees: &mut DayFees,
    report: &mut Reconciliation,
) {
    for (day, lines) in with_tools {
        let of_day = fees.get(&day).into_iter().flatten().map(|(_, amount)| *amount);
        let differences = lines.iter().map(|(_, line)| line.theirs.minus(line.ours));
        let rest = of_day.chain(differences).fold(Femtousd::ZERO, Femtousd::plus);
        let calls = lines.iter().fold(0_i128, |sum, (calls, _)| sum.saturating_add(*calls));
        if is_agreement(rest, calls) {
            let count = u64::try_from(lines.len()).unwrap_or(u64::MAX);
            report.agreeing = report.agreeing.saturating_add(count);
            report.rest_max = report.rest_max.max(rest.magnitude());
            report.notes.insert("fees of tools were compared by day, with their models".to_owned());
            fees.remove(&day);
        } else {
            report.amounts.extend(lines.into_iter().map(|(_, line)| line));
        }
    }
}

/// The ends of our lines that went over midnight, as far as they are on these days: the key there, the
/// line, and whether the line was settled there.
fn over_midnight<'a>(
    own: &'a [OwnLine],
    days: &'a BTreeSet<Day>,
    names: &'a SharedNames<'_>,
    grain: GroupBy,
) -> impl Iterator<Item = (StatementKey, &'a OwnLine, bool)> {
    let over = own.iter().filter(|line| line.began != line.day);
    let ends = over.flat_map(|line| [(line.began, line, false), (line.day, line, true)]);
    ends.filter(|(day, ..)| days.contains(day)).map(move |(day, line, is_end)| {
        (StatementKey { day, ..names.own_key(line, grain) }, line, is_end)
    })
}

/// Set the measures of each group: those in the provider's pages of the model, or of all models if it
/// has none.
fn set_measures(
    groups: &mut BTreeMap<StatementKey, QuantityGroup>,
    statement: &BilledStatement,
    names: &SharedNames<'_>,
    grain: GroupBy,
) {
    let mut measures_by_model: BTreeMap<Option<String>, BTreeSet<Measure>> = BTreeMap::new();
    for (models, measures) in &statement.measures {
        measures_by_model.entry(names.shared_model(models, grain)).or_default().extend(measures);
    }
    let all: BTreeSet<Measure> = measures_by_model.values().flatten().copied().collect();
    for (key, group) in groups {
        group.measures = measures_by_model.get(&key.model).unwrap_or(&all).clone();
    }
}

/// Measures of the quantities within an amount.
fn measures_within(
    amount: &StatementKey,
    quantities: &BTreeMap<StatementKey, QuantityGroup>,
) -> BTreeSet<Measure> {
    let within = groups_within(amount, quantities);
    within.flat_map(|group| &group.measures).copied().collect()
}

/// True if a quantity's key lies within an amount's.
fn is_within(quantity: &StatementKey, amount: &StatementKey) -> bool {
    let matches = |fine: &Option<String>, coarse: &Option<String>| {
        fine.is_none() || coarse.is_none() || fine == coarse
    };
    quantity.day == amount.day
        && matches(&quantity.model, &amount.model)
        && matches(&quantity.credential, &amount.credential)
}

fn is_without_quantities(
    amount: &StatementKey,
    quantities: &BTreeMap<StatementKey, QuantityGroup>,
) -> bool {
    let mut within = groups_within(amount, quantities);
    within.all(|group| group.measures.is_empty())
}

/// True if the provider has more requests than ours within an amount.
fn has_more_calls(
    amount: &StatementKey,
    quantities: &BTreeMap<StatementKey, QuantityGroup>,
) -> bool {
    let mut within = groups_within(amount, quantities);
    within.any(|group| group.has_more_calls())
}

/// The classes of the quantities that an amount is for. The number of requests has no price.
fn classes_behind(
    amount: &StatementKey,
    quantities: &BTreeMap<StatementKey, QuantityGroup>,
) -> BTreeSet<DifferenceClass> {
    let within = groups_within(amount, quantities);
    let differences = within.flat_map(|group| &group.differences);
    let units = differences.filter(|(measure, _)| **measure != Measure::Calls);
    units.filter_map(|(_, difference)| difference.class).collect()
}

/// Quantities within an amount. Only its day is searched: an hourly export of a month has many others.
fn groups_within<'q>(
    amount: &'q StatementKey,
    quantities: &'q BTreeMap<StatementKey, QuantityGroup>,
) -> impl Iterator<Item = &'q QuantityGroup> {
    let at = |day| StatementKey { day, model: None, credential: None };
    let on_day = quantities.range(at(amount.day)..at(amount.day.next()));
    on_day.filter(|(key, _)| is_within(key, amount)).map(|(_, group)| group)
}

/// Report `--credential` mappings that match nothing on one side.
fn note_unused_credentials(
    own: &[OwnLine],
    statement: &BilledStatement,
    credentials: &CredentialNames,
    report: &mut Reconciliation,
) {
    let quantities = statement.quantities.iter().map(|line| &line.key);
    let keys = quantities.chain(statement.amounts.iter().map(|line| &line.key));
    let ids: BTreeSet<&String> = keys.flat_map(|key| &key.ids).collect();
    for (id, name) in credentials {
        if !ids.contains(id) {
            report.notes.insert(format!("the statement has nothing of {id}"));
        }
        if !own.iter().any(|line| line.credential_name() == name) {
            report.notes.insert(format!("the journal has no costs of the credential {name}"));
        }
    }
}

/// Report the dimensions by which lines were not compared.
fn note_grain(grain: GroupBy, is_any: bool, what: &str, report: &mut Reconciliation) {
    if is_any && !grain.by_model {
        report.notes.insert(format!("{what} are not told apart by model"));
    }
    if is_any && !grain.by_credential {
        report.notes.insert(format!(
            "{what} are not told apart by credential: the statement has none, or none of its ids is \
             said to be one of ours"
        ));
    }
}
