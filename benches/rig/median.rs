//! The middle of several rounds' figures.

/// The median; `None` of nothing.
pub(crate) fn median(mut figures: Vec<f64>) -> Option<f64> {
    figures.sort_by(f64::total_cmp);
    let upper = *figures.get(figures.len() / 2)?;
    let lower = *figures.get((figures.len() - 1) / 2)?;
    Some(f64::midpoint(lower, upper))
}
