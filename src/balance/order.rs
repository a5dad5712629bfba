//! The order in which a model's targets are tried.

/// Indices of targets in the order to try them: by ascending priority, and among equals by a draw
/// that their weights bias. `draw(n)` returns a number below `n`, which is never 0.
///
/// `targets` are pairs of priority and weight, sorted by priority. A weight of 0 is tried last.
pub fn order(targets: &[(u32, u32)], mut draw: impl FnMut(u64) -> u64) -> Vec<usize> {
    let mut ordered = Vec::with_capacity(targets.len());
    let mut start = 0;
    while let Some((priority, _)) = targets.get(start) {
        let tier = targets.iter().skip(start).take_while(|(other, _)| other == priority).count();
        let mut left: Vec<usize> = (start..start + tier).collect();
        while left.len() > 1 {
            let weight =
                |index: &usize| targets.get(*index).map_or(0, |(_, weight)| u64::from(*weight));
            let total: u64 = left.iter().map(weight).sum();
            let mut ticket = if total == 0 { 0 } else { draw(total) };
            let winner = left.iter().position(|index| {
                let wins = ticket < weight(index);
                ticket = ticket.saturating_sub(weight(index));
                wins
            });
            ordered.push(left.remove(winner.unwrap_or(0)));
        }
        ordered.extend(left);
        start += tier;
    }
    ordered
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn priorities_come_first_and_weights_bias_the_draw() {
        let targets = [(0, 1), (0, 3), (1, 1), (2, 0), (2, 0)];
        let mut firsts = [0; 5];
        for ticket in 0..4 {
            let ordered = order(&targets, |total| {
                assert_eq!(total, 4, "the draw is over the weights of one tier");
                ticket
            });
            firsts[ordered[0]] += 1;
            assert_eq!(&ordered[2..], [2, 3, 4], "lower tiers keep their order");
        }
        assert_eq!(firsts, [1, 3, 0, 0, 0]);
    }

    #[test]
    fn one_target_needs_no_draw() {
        assert_eq!(order(&[(0, 1)], |_| unreachable!("no draw among one")), [0]);
        assert!(order(&[], |_| unreachable!("no draw among none")).is_empty());
    }
}
