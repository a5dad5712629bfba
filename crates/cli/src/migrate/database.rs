//! `tollgate migrate up` and `tollgate migrate status`: schema migrations of a fleet's database.

use std::process::ExitCode;

use clap::Args;
use serde_json::{Value, json};

use super::super::terminal::{errln, outln};
use crate::exit::{CODES, Failure, REFUSED};
use crate::files::{self, Files};
use crate::sheet::{Sheet, ValueFormat};
use tollgate_fleet::postgres::migrate::{self, MIGRATIONS, SchemaState};
use tollgate_fleet::postgres::{Db, DbError, PostgresOptions};

/// Advice for an unusable file.
const OTHER_FILE: &str = "or name the file of a node with --routes";

/// Table of schema migrations.
const STEPS: Sheet = Sheet::list(
    "/version",
    &[
        ("step", "/version", ValueFormat::Figure),
        ("name", "/name", ValueFormat::Text),
        ("taken", "/applied_at", ValueFormat::Text),
    ],
);

/// Migrate the database of `store.postgres` to the schema of this version. Data stays; running it again,
/// or from several machines at once, is safe.
#[derive(Args, Debug)]
#[command(after_help = format!("\
Examples:
  tollgate migrate up --dry-run
  tollgate migrate up --routes /etc/tollgate/routes.yaml --models /etc/tollgate/models.yaml

{CODES} Here 4 is an unsuitable database or schema, and 5 a database that does not answer."))]
pub(crate) struct DatabaseUp {
    /// Print the statements without running them.
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    files: Files,
}

/// Show the schema migrations of `store.postgres`, and whether this version is compatible.
#[derive(Args, Debug)]
#[command(after_help = format!("\
Examples:
  tollgate migrate status
  tollgate migrate status --json | jq .standing

{CODES} Here 1 is a schema that lacks steps, 4 an unsuitable database or schema, and 5 a \
database that does not answer."))]
pub(crate) struct DatabaseStatus {
    /// Print one JSON document instead of a table.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    files: Files,
}

impl DatabaseUp {
    pub(super) fn run(self) -> anyhow::Result<ExitCode> {
        output(&self.files, async |db| {
            if self.dry_run {
                return dry_run(&db).await;
            }
            for name in migrate::up(&db).await? {
                outln!("{name}");
            }
            let last = MIGRATIONS.last().map_or(0, |step| step.version);
            errln!("PostgreSQL at {} has the schema of this version: step {last}", db.place());
            Ok(ExitCode::SUCCESS)
        })
    }
}

async fn dry_run(db: &Db) -> Result<ExitCode, DbError> {
    let standing = migrate::standing(db).await?;
    // The statements of this version mean nothing on a schema that it does not know.
    if !matches!(standing, SchemaState::Current | SchemaState::Missing | SchemaState::Behind { .. })
    {
        return Err(migrate::refusal(db.place(), &standing));
    }
    let steps = migrate::steps(db).await?;
    for step in MIGRATIONS {
        let is_taken = |taken: &migrate::MigrationStep| taken.applied_at.is_some();
        if !steps.iter().any(|taken| taken.version == step.version && is_taken(taken)) {
            outln!("-- Step {}: {}\n{}", step.version, step.name, step.sql.trim_end());
        }
    }
    Ok(ExitCode::SUCCESS)
}

impl DatabaseStatus {
    pub(super) fn run(self) -> anyhow::Result<ExitCode> {
        output(&self.files, async |db| {
            let standing = migrate::standing(&db).await?;
            let steps = migrate::steps(&db).await?;
            let rows = steps.into_iter().map(|step| {
                json!({ "version": step.version, "name": step.name, "applied_at": step.applied_at })
            });
            let (word, code) = word(&standing);
            let rows = rows.collect::<Vec<_>>();
            let document = json!({ "database": db.place(), "standing": word, "data": rows });
            say(&document, self.json);
            if standing != SchemaState::Current {
                errln!("{}", migrate::refusal(db.place(), &standing));
            }
            Ok(code)
        })
    }
}

fn say(document: &Value, as_json: bool) {
    if as_json {
        outln!("{document}");
    } else {
        outln!("{}", STEPS.table(document));
    }
}

/// State of a schema, for scripts.
fn word(standing: &SchemaState) -> (&'static str, ExitCode) {
    match standing {
        SchemaState::Current => ("current", ExitCode::SUCCESS),
        SchemaState::Missing => ("missing", ExitCode::FAILURE),
        SchemaState::Behind { .. } => ("behind", ExitCode::FAILURE),
        SchemaState::Ahead { .. } => ("ahead", ExitCode::from(REFUSED)),
        SchemaState::Changed { .. } => ("changed", ExitCode::from(REFUSED)),
        SchemaState::Incomplete { .. } => ("incomplete", ExitCode::from(REFUSED)),
    }
}

/// Query the configured database.
fn output(
    files: &Files,
    ask: impl AsyncFnOnce(Db) -> Result<ExitCode, DbError>,
) -> anyhow::Result<ExitCode> {
    let options = options(files)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let answer = runtime.block_on(async {
        // Without the check of the schema that a node makes: this command is what mends it.
        let db = Db::for_migrations(&options).await?;
        ask(db).await
    });
    answer.map_err(|error| anyhow::Error::new(Failure::of_database(&error)))
}

/// Connection options of `store.postgres`. Nothing else of the file is read: migrations also run where
/// neither a node's name nor a provider's key is set.
///
/// # Errors
/// The file names no database, or is invalid.
pub(super) fn options(files: &Files) -> anyhow::Result<PostgresOptions> {
    let found = files.settings().and_then(|file| file.database());
    let found = found.map_err(|errors| refused(files::failure(&errors, OTHER_FILE)))?;
    found.ok_or_else(|| {
        anyhow::Error::new(Failure {
            code: REFUSED,
            message: format!("{} names no database", files.routes().display()),
            help: Some("a fleet has `store.postgres`; a single gateway needs no schema".to_owned()),
        })
    })
}

/// Set the exit code of an unusable database.
fn refused(error: anyhow::Error) -> anyhow::Error {
    match error.downcast::<Failure>() {
        Ok(failure) => Failure { code: REFUSED, ..failure }.into(),
        Err(error) => error,
    }
}
