//! `docs/clients.md`: the rows of the tables come from the sessions.

use std::sync::Mutex;

use super::cell::Cell;
use super::versions;

/// The page below the directory of the repository.
const PAGE: &str = "docs/clients.md";
/// Tests of one process write one after the other.
static PAGE_LOCK: Mutex<()> = Mutex::new(());

/// A row of the table of sessions.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    /// All columns but the result.
    key: String,
    result: String,
}

impl Row {
    pub(crate) fn new(cell: Cell, result: &Result<usize, String>) -> Self {
        let client = cell.agent.client();
        let key = format!(
            "| {client} | {} | {} | `{}` | {} |",
            versions::of(client),
            cell.agent.door(),
            cell.model,
            cell.upstream.title()
        );
        let how = if cell.is_native() { "relayed unchanged" } else { "translated" };
        let result = match result {
            Ok(turns) => format!("{how}, {turns} turns, {}", versions::date()),
            Err(fault) => format!("fails: {}", fault.lines().next().unwrap_or_default()),
        };
        Self { key, result }
    }

    fn line(&self) -> String {
        format!("{} {} |", self.key, self.result)
    }
}

fn read() -> String {
    std::fs::read_to_string(versions::path(PAGE)).expect("the page")
}

/// True if a line of the page is the row of a session.
fn is_row(line: &str) -> bool {
    let names = versions::clients();
    names.iter().any(|client| line.starts_with(&format!("| {} | ", client.name)))
        && line.matches(" | ").count() == 5
}

/// Compares the rows with the page, or writes them into it. Sessions that fail never pass.
pub(crate) fn check(rows: &[Row]) {
    let guard = PAGE_LOCK.lock().expect("no poison");
    let page = read();
    if versions::renews() {
        let mut all: Vec<String> =
            page.lines().filter(|line| is_row(line)).map(str::to_owned).collect();
        all.retain(|line| !rows.iter().any(|row| line.starts_with(&row.key)));
        all.extend(rows.iter().map(Row::line));
        all.sort();
        let mut lines: Vec<&str> = page.lines().filter(|line| !is_row(line)).collect();
        let head = "| Client | Version | API | Model | Upstream | Result |";
        let at = lines.iter().position(|line| *line == head).expect("the table") + 2;
        lines.splice(at..at, all.iter().map(String::as_str));
        std::fs::write(versions::path(PAGE), lines.join("\n") + "\n").expect("the page is written");
    }
    let page = read();
    drop(guard);
    let failed: Vec<String> =
        rows.iter().map(Row::line).filter(|line| line.contains("| fails: ")).collect();
    assert!(failed.is_empty(), "{}", failed.join("\n"));
    let missing: Vec<String> =
        rows.iter().map(Row::line).filter(|line| !page.lines().any(|it| it == line)).collect();
    let remedy = "run: UPDATE_EXPECTED=1 cargo test --test operations dialect -- --ignored";
    assert!(missing.is_empty(), "{PAGE} lacks; {remedy}\n{}", missing.join("\n"));
}

#[test]
fn the_page_has_the_versions_that_are_pinned() {
    let page = read();
    let rows: Vec<&str> = page.lines().filter(|line| is_row(line)).collect();
    assert!(rows.len() >= 23, "each agent over each dialect: {rows:?}");
    for row in rows {
        let columns: Vec<&str> = row.split(" | ").collect();
        let client = columns[0].trim_start_matches("| ");
        assert_eq!(columns[1], versions::of(client), "{row}");
        assert!(row.contains(&versions::date()), "{row}");
    }
}
