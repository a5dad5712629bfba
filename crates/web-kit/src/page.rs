//! Pages of long lists.

/// Cuts a list to one page, and returns the cursor of the next one: that of the last item left.
///
/// The list was read with one item more than the page has; whether that item is there tells whether
/// the list goes on.
pub fn cut_page<T, C>(items: &mut Vec<T>, items_max: usize, cursor: impl Fn(&T) -> C) -> Option<C> {
    let has_more = items.len() > items_max;
    items.truncate(items_max);
    // No cursor on the last page: whoever follows cursors ends there without an empty request.
    items.last().filter(|_| has_more).map(cursor)
}
