//! Diagnostics about a file in the style of a compiler: place, message and help.

use std::fmt;

use annotate_snippets::{AnnotationKind, Group, Level, Renderer, Snippet};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use tollgate_types::closest::closest;
use tollgate_types::printable::{escaped, is_steering};

/// Severity of a diagnostic.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// The configuration cannot be used.
    Error,
    /// Usable, but probably a mistake.
    Warning,
    /// Information that the operator should know.
    Note,
}

/// One finding in a configuration file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Diagnostic {
    /// Severity of the diagnostic.
    pub severity: Severity,
    /// Message: one sentence without a full stop.
    pub message: String,
    /// Path of the file as the operator gave it.
    pub file: String,
    /// Excerpt of the file; `None` for a fault of the file as a whole.
    #[serde(flatten)]
    pub place: Option<SourceExcerpt>,
    /// Suggested fix for the operator.
    pub help: Option<String>,
}

/// A part of one line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename = "Place")]
pub struct SourceExcerpt {
    /// Number of the line, from 1.
    pub line: usize,
    /// Column in characters, from 1.
    pub column: usize,
    /// Number of marked characters, at least 1.
    pub width: usize,
    /// The line with secrets masked by asterisks; long lines are cut, marked with `…`.
    pub text: String,
    /// Column of the first character of `text`; more than 1 where the line was cut before it.
    #[serde(default = "first_column", skip_serializing_if = "is_first_column")]
    pub text_column: usize,
}

const fn first_column() -> usize {
    1
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "what serde calls")]
const fn is_first_column(column: &usize) -> bool {
    *column == 1
}

impl Diagnostic {
    /// The diagnostic over several lines, with the line of the file at fault, without colours.
    #[must_use]
    pub fn render(&self) -> String {
        self.render_with(&Renderer::plain())
    }

    /// The diagnostic over several lines, coloured for a terminal, with the line of the file at
    /// fault.
    #[must_use]
    pub fn render_in_colour(&self) -> String {
        self.render_with(&Renderer::styled())
    }

    fn render_with(&self, renderer: &Renderer) -> String {
        let file = escaped(&self.file);
        let level = match self.severity {
            Severity::Error => Level::ERROR,
            Severity::Warning => Level::WARNING,
            Severity::Note => Level::NOTE,
        };
        // A file may be anybody's: nothing of it steers the terminal.
        let title = level.primary_title(escaped(&self.message));
        let mut group = match &self.place {
            None => Group::with_title(title),
            Some(place) => title.element(
                Snippet::source(place.printable())
                    .path(file.as_ref())
                    .line_start(place.line)
                    .annotation(AnnotationKind::Primary.span(place.bytes())),
            ),
        };
        if let Some(help) = &self.help {
            group = group.element(Level::HELP.message(escaped(help)));
        }
        let rendered = renderer.render(&[group]);
        match &self.place {
            // The renderer counts from where the line was cut.
            Some(place) if place.text_column > 1 => {
                let at = |column| format!("{file}:{}:{column}", place.line);
                let shown = place.column.saturating_sub(place.text_column).saturating_add(1);
                rendered.replacen(&at(shown), &at(place.column), 1)
            }
            _ => rendered,
        }
    }
}

impl fmt::Display for Diagnostic {
    /// One line: `routes.yaml:3:5: error: …`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:", self.file)?;
        if let Some(place) = &self.place {
            write!(f, "{}:{}:", place.line, place.column)?;
        }
        let severity = match self.severity {
            Severity::Error => "error",
            Severity::Warning => "warning",
            Severity::Note => "note",
        };
        write!(f, " {severity}: {}", self.message)
    }
}

impl SourceExcerpt {
    /// The part of a line around a range, if the line is long.
    pub(super) fn around(line_chars: &[char], line: usize, column: usize, width: usize) -> Self {
        /// Maximum number of characters of a line that are shown; more is useless on a terminal.
        const SHOWN_MAX: usize = 200;
        /// Characters of context before the range.
        const BEFORE: usize = 60;
        let line = line.max(1);
        let whole = |text: &[char]| text.iter().collect::<String>();
        if line_chars.len() <= SHOWN_MAX {
            return Self { line, column, width, text: whole(line_chars), text_column: 1 };
        }
        let latest = line_chars.len() - SHOWN_MAX;
        let begin = column.saturating_sub(1).saturating_sub(BEFORE).min(latest);
        let end = begin + SHOWN_MAX;
        let mut text = whole(line_chars.get(begin..end).unwrap_or_default());
        if end < line_chars.len() {
            text.push('…');
        }
        if begin > 0 {
            text.insert(0, '…');
        }
        // The dots stand in the place of the character before.
        Self { line, column, width, text, text_column: begin.max(1) }
    }

    /// `text` with a sign in the place of each character that would steer a terminal: columns stay.
    fn printable(&self) -> String {
        let sign = |c: char| if is_steering(c) && c != '\t' { '\u{fffd}' } else { c };
        self.text.chars().map(sign).collect()
    }

    /// The marked range, as bytes of the printed text.
    fn bytes(&self) -> std::ops::Range<usize> {
        let text = self.printable();
        let byte_of = |column: usize| {
            text.char_indices().map(|(byte, _)| byte).nth(column).unwrap_or(text.len())
        };
        let first = self.column.saturating_sub(self.text_column);
        byte_of(first)..byte_of(first.saturating_add(self.width))
    }
}

/// Everything that there is to say about the files, for programs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename = "Report")]
pub struct DiagnosticReport {
    /// True if the files can be used.
    pub ok: bool,
    /// Number of errors among the diagnostics.
    pub errors: usize,
    /// Number of warnings among the diagnostics.
    pub warnings: usize,
    /// Hash of the files if they are valid.
    pub configuration: Option<String>,
    /// All diagnostics, in the order of the files.
    pub diagnostics: Vec<Diagnostic>,
}

/// The report on the files. `configuration` is the hash of those that can be used.
#[must_use]
pub fn report(configuration: Option<&str>, diagnostics: &[Diagnostic]) -> DiagnosticReport {
    DiagnosticReport {
        ok: configuration.is_some(),
        errors: count(diagnostics, Severity::Error),
        warnings: count(diagnostics, Severity::Warning),
        configuration: configuration.map(ToOwned::to_owned),
        diagnostics: diagnostics.to_vec(),
    }
}

/// The number of diagnostics of this severity.
#[must_use]
pub fn count(diagnostics: &[Diagnostic], severity: Severity) -> usize {
    diagnostics.iter().filter(|diagnostic| diagnostic.severity == severity).count()
}

/// "did you mean `x`?", or else every word that there is.
pub(super) fn did_you_mean(typed: &str, what: &str, candidates: &[&str]) -> Option<String> {
    match closest(typed, candidates.iter().copied()) {
        Some(word) => Some(format!("did you mean `{word}`?")),
        None if candidates.is_empty() => None,
        None => Some(format!("{what}: {}", listed(candidates))),
    }
}

/// `a`, `b`, `c`: at most twelve, then how many more.
pub(super) fn listed(words: &[&str]) -> String {
    const SHOWN_MAX: usize = 12;
    let shown: Vec<_> = words.iter().take(SHOWN_MAX).map(|word| format!("`{word}`")).collect();
    match words.len().checked_sub(SHOWN_MAX) {
        None | Some(0) => shown.join(", "),
        Some(more) => format!("{} and {more} more", shown.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_diagnostic_points_at_characters_not_bytes() {
        let diagnostic = Diagnostic {
            severity: Severity::Error,
            message: "unknown field `fälsch`".to_owned(),
            file: "routes.yaml".to_owned(),
            place: Some(SourceExcerpt {
                line: 7,
                column: 7,
                width: 6,
                text: "  ü: {fälsch: 1}".to_owned(),
                text_column: 1,
            }),
            help: Some("did you mean `false`?".to_owned()),
        };
        let text = diagnostic.render();
        assert!(text.contains("--> routes.yaml:7:7"), "the place:\n{text}");
        assert!(text.contains("      ^^^^^^\n"), "six characters are marked:\n{text}");
        assert_eq!(diagnostic.to_string(), "routes.yaml:7:7: error: unknown field `fälsch`");
    }
}
