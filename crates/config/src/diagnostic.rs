//! What the operator is told about a file: where, what and what to do, in the style of a compiler.

use std::fmt;

use annotate_snippets::{AnnotationKind, Group, Level, Renderer, Snippet};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use tollgate_money::closest::closest;

/// How much a diagnostic matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// The configuration cannot be used.
    Error,
    /// It can be used, but probably not as meant.
    Warning,
    /// Worth knowing.
    Note,
}

/// One thing to say about a configuration file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Diagnostic {
    /// How much it matters.
    pub severity: Severity,
    /// What is the matter, in one sentence without a full stop.
    pub message: String,
    /// The file, as the operator named it.
    pub file: String,
    /// Where in the file; `None` when it is about the file as a whole.
    #[serde(flatten)]
    pub place: Option<SourceExcerpt>,
    /// What to do.
    pub help: Option<String>,
}

/// A piece of one line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename = "Place")]
pub struct SourceExcerpt {
    /// Line, from 1.
    pub line: usize,
    /// Column in characters, from 1.
    pub column: usize,
    /// How many characters are meant; at least 1.
    pub width: usize,
    /// The whole line, with secrets overwritten by asterisks.
    pub text: String,
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
        let level = match self.severity {
            Severity::Error => Level::ERROR,
            Severity::Warning => Level::WARNING,
            Severity::Note => Level::NOTE,
        };
        let title = level.primary_title(self.message.as_str());
        let mut group = match &self.place {
            None => Group::with_title(title),
            Some(place) => title.element(
                Snippet::source(place.text.as_str())
                    .path(self.file.as_str())
                    .line_start(place.line)
                    .annotation(AnnotationKind::Primary.span(place.bytes())),
            ),
        };
        if let Some(help) = &self.help {
            group = group.element(Level::HELP.message(help.as_str()));
        }
        renderer.render(&[group])
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
    /// The piece that is meant, as bytes of `text`.
    fn bytes(&self) -> std::ops::Range<usize> {
        let byte_of = |column: usize| {
            let mut starts = self.text.char_indices().map(|(byte, _)| byte);
            starts.nth(column).unwrap_or(self.text.len())
        };
        let first = self.column.saturating_sub(1);
        byte_of(first)..byte_of(first.saturating_add(self.width))
    }
}

/// Everything that there is to say about the files, for programs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename = "Report")]
pub struct DiagnosticReport {
    /// Whether the files can be used.
    pub ok: bool,
    /// How many errors there are.
    pub errors: usize,
    /// How many warnings there are.
    pub warnings: usize,
    /// The hash of files that can be used.
    pub configuration: Option<String>,
    /// What there is to say.
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

/// How many of them matter this much.
#[must_use]
pub fn count(diagnostics: &[Diagnostic], severity: Severity) -> usize {
    diagnostics.iter().filter(|diagnostic| diagnostic.severity == severity).count()
}

/// "did you mean `x`?", or else every word that there is.
pub(super) fn did_you_mean(typed: &str, what: &str, known: &[&str]) -> Option<String> {
    match closest(typed, known.iter().copied()) {
        Some(word) => Some(format!("did you mean `{word}`?")),
        None if known.is_empty() => None,
        None => Some(format!("{what}: {}", listed(known))),
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
            }),
            help: Some("did you mean `false`?".to_owned()),
        };
        let text = diagnostic.render();
        assert!(text.contains("--> routes.yaml:7:7"), "the place:\n{text}");
        assert!(text.contains("      ^^^^^^\n"), "six characters are marked:\n{text}");
        assert_eq!(diagnostic.to_string(), "routes.yaml:7:7: error: unknown field `fälsch`");
    }
}
