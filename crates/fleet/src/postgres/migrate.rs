//! The schema, in numbered steps that are taken once each and never changed.

use std::collections::BTreeMap;

use sha2::{Digest as _, Sha256};

use super::{Db, DbError, Transaction};

/// One step of the schema.
#[derive(Clone, Copy, Debug)]
pub struct Migration {
    /// Its number: 1, 2, 3 and so on without a gap.
    pub version: i64,
    /// A short description of the change.
    pub name: &'static str,
    /// Its statements, which run in one transaction.
    pub sql: &'static str,
}

/// All migrations, in order. A released migration is never changed.
pub const MIGRATIONS: &[Migration] = &[
    Migration { version: 1, name: "treasury", sql: include_str!("migrations/0001_treasury.sql") },
    Migration { version: 2, name: "tasks", sql: include_str!("migrations/0002_tasks.sql") },
    Migration { version: 3, name: "limits", sql: include_str!("migrations/0003_limits.sql") },
    Migration { version: 4, name: "reads", sql: include_str!("migrations/0004_reads.sql") },
    Migration { version: 5, name: "moved", sql: include_str!("migrations/0005_moved.sql") },
    Migration { version: 6, name: "resolved", sql: include_str!("migrations/0006_resolved.sql") },
    Migration { version: 7, name: "debts", sql: include_str!("migrations/0007_debts.sql") },
    Migration { version: 8, name: "units", sql: include_str!("migrations/0008_units.sql") },
    Migration { version: 9, name: "credit", sql: include_str!("migrations/0009_credit.sql") },
];

/// Creates the table of applied migrations. Concurrent migrations lock its row 0, one after another.
const BEGINNING: &str = include_str!("migrations/0000_schema_version.sql");

/// The state of a schema in relation to this version of the program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SchemaState {
    /// The schema is the one that this version needs.
    Current,
    /// The database has no schema `tollgate`.
    Missing,
    /// It lacks steps: the first of them.
    Behind {
        /// Number of the last applied migration.
        at: i64,
        /// The last step of this version.
        needs: i64,
    },
    /// It has steps that this version does not know.
    Ahead {
        /// Number of the last applied migration.
        at: i64,
        /// The last step in this version.
        knows: i64,
    },
    /// A step was taken that reads otherwise in this version.
    Changed {
        /// The version that the step leads to.
        version: i64,
    },
    /// Every step was applied, but a table is missing.
    Incomplete {
        /// The name of the table that is not there.
        table: String,
    },
}

/// A step and when it was taken.
#[derive(Clone, Debug)]
pub struct MigrationStep {
    /// The number of the step, from 1.
    pub version: i64,
    /// A short description of the change.
    pub name: String,
    /// The time of its application, by the database's clock; `None` if it is pending.
    pub applied_at: Option<String>,
}

/// Checks whether this version is compatible with the schema.
///
/// # Errors
/// What to do, when it cannot.
pub(super) async fn check(db: &Db) -> Result<(), DbError> {
    check_for(db, MIGRATIONS).await
}

/// The schema's standing.
///
/// # Errors
/// When the database cannot be asked.
pub async fn standing(db: &Db) -> Result<SchemaState, DbError> {
    standing_for(db, MIGRATIONS).await
}

/// Applies the missing steps, each in a transaction of its own, and returns their names. Safe to run twice,
/// and from several processes at once.
///
/// # Errors
/// When the schema is ahead or was changed, or the database refuses a step: those before it stay.
pub async fn up(db: &Db) -> Result<Vec<&'static str>, DbError> {
    up_to(db, MIGRATIONS).await
}

/// Lists every step of this version or of the database, in order.
///
/// # Errors
/// When the database cannot be asked.
pub async fn steps(db: &Db) -> Result<Vec<MigrationStep>, DbError> {
    let taken = taken(db).await?.unwrap_or_default();
    let built_in = MIGRATIONS.iter().map(|step| (step.version, step.name.to_owned()));
    let mut names = built_in.collect::<BTreeMap<_, _>>();
    for (version, step) in &taken {
        names.entry(*version).or_insert_with(|| step.name.clone());
    }
    let steps = names.into_iter().map(|(version, name)| {
        let applied_at = taken.get(&version).map(|step| step.applied_at.clone());
        MigrationStep { version, name, applied_at }
    });
    Ok(steps.collect())
}

async fn check_for(db: &Db, migrations: &[Migration]) -> Result<(), DbError> {
    match standing_for(db, migrations).await? {
        SchemaState::Current => Ok(()),
        standing => Err(refusal(db.place(), &standing)),
    }
}

/// Explains why this version does not work with a schema, and the action to take.
#[must_use]
pub fn refusal(place: &str, standing: &SchemaState) -> DbError {
    let up = "run `tollgate migrate up`";
    let wrong = match standing {
        SchemaState::Current => "the schema is the one of this version".to_owned(),
        SchemaState::Missing => format!("there is no schema `tollgate` yet: {up}"),
        SchemaState::Behind { at, needs } => {
            format!("the schema is at step {at} and this version needs step {needs}: {up}")
        }
        SchemaState::Ahead { at, knows } => format!(
            "the schema is from the future: it is at step {at} and this version knows {knows}; run \
             a newer version of tollgate"
        ),
        SchemaState::Changed { version } => format!(
            "step {version} of the schema is not the one that this version has: another program, \
             or an unreleased version, has made it; see `tollgate migrate status`"
        ),
        SchemaState::Incomplete { table } => format!(
            "the table tollgate.{table} is missing though every step was taken: restore the \
             database from a backup"
        ),
    };
    DbError::Failed(format!("PostgreSQL at {place}: {wrong}"))
}

async fn standing_for(db: &Db, migrations: &[Migration]) -> Result<SchemaState, DbError> {
    let Some(taken) = taken(db).await? else { return Ok(SchemaState::Missing) };
    if let Some(wrong) = compare(&taken, migrations) {
        return Ok(wrong);
    }
    let missing = missing_table(db, migrations).await?;
    Ok(missing.map_or(SchemaState::Current, |table| SchemaState::Incomplete { table }))
}

struct AppliedMigration {
    name: String,
    sha256: String,
    applied_at: String,
}

type AllTaken = BTreeMap<i64, AppliedMigration>;

/// Finds a fault in the applied steps.
fn compare(taken: &AllTaken, migrations: &[Migration]) -> Option<SchemaState> {
    let at = taken.keys().next_back().copied().unwrap_or_default();
    let knows = migrations.last().map_or(0, |step| step.version);
    // First: a newer schema asks for a newer program, whatever else differs.
    if at > knows {
        return Some(SchemaState::Ahead { at, knows });
    }
    let changed = migrations.iter().find(|step| {
        taken.get(&step.version).is_some_and(|taken| taken.sha256 != digest(step.sql))
    });
    if let Some(step) = changed {
        return Some(SchemaState::Changed { version: step.version });
    }
    let lacks = migrations.iter().any(|step| !taken.contains_key(&step.version));
    lacks.then_some(SchemaState::Behind { at, needs: knows })
}

/// Applied migrations; `None` without the table.
async fn taken(db: &Db) -> Result<Option<AllTaken>, DbError> {
    let there = "SELECT 1 FROM information_schema.tables
                 WHERE table_schema = 'tollgate' AND table_name = 'schema_version'";
    if db.query(there, &[]).await?.is_empty() {
        return Ok(None);
    }
    let rows = db.query(ALL_TAKEN, &[]).await?;
    read_taken(&rows).map(Some)
}

const ALL_TAKEN: &str =
    "SELECT version, name, sha256, applied_at::text FROM tollgate.schema_version
                         WHERE version > 0 ORDER BY version";

fn read_taken(rows: &[tokio_postgres::Row]) -> Result<AllTaken, DbError> {
    let mut taken = AllTaken::new();
    for row in rows {
        let step = AppliedMigration {
            name: row.try_get(1)?,
            sha256: row.try_get(2)?,
            applied_at: row.try_get(3)?,
        };
        taken.insert(row.try_get(0)?, step);
    }
    Ok(taken)
}

/// A table that the steps make and the database has not.
async fn missing_table(db: &Db, migrations: &[Migration]) -> Result<Option<String>, DbError> {
    let sql = "SELECT table_name::text FROM information_schema.tables
               WHERE table_schema = 'tollgate'";
    let mut there = Vec::new();
    for row in db.query(sql, &[]).await? {
        there.push(row.try_get::<_, String>(0)?);
    }
    Ok(tables(migrations).into_iter().find(|table| !there.contains(table)))
}

/// The tables that are there when every step was taken.
fn tables(migrations: &[Migration]) -> Vec<String> {
    let mut tables = Vec::new();
    for line in migrations.iter().flat_map(|step| step.sql.lines()) {
        let named = |rest: &str| {
            let end = rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_');
            rest[..end.unwrap_or(rest.len())].to_owned()
        };
        if let Some(rest) = line.trim().strip_prefix("CREATE TABLE tollgate.") {
            tables.push(named(rest));
        } else if let Some(rest) = line.trim().strip_prefix("DROP TABLE tollgate.") {
            let dropped = named(rest);
            tables.retain(|table| *table != dropped);
        }
    }
    tables
}

async fn up_to(db: &Db, migrations: &[Migration]) -> Result<Vec<&'static str>, DbError> {
    begin(db).await?;
    let mut applied = Vec::new();
    while let Some(name) = next(db, migrations).await? {
        applied.push(name);
    }
    check_for(db, migrations).await?;
    Ok(applied)
}

/// Creates the schema and the table of migrations, unless they exist.
async fn begin(db: &Db) -> Result<(), DbError> {
    if taken(db).await?.is_some() {
        return Ok(());
    }
    let made = db.transact(|tx| Box::pin(async move { tx.batch(BEGINNING).await })).await;
    match made {
        Ok(()) => Ok(()),
        // Two processes that make the same thing at the same moment: one of them fails on the other's
        // row in the catalogue, and finds everything made.
        Err(error) if taken(db).await?.is_none() => Err(error),
        Err(_) => Ok(()),
    }
}

/// Applies the next missing migration and returns its name; `None` if there is none.
async fn next(db: &Db, migrations: &[Migration]) -> Result<Option<&'static str>, DbError> {
    db.transact(|tx| Box::pin(take_next(tx, migrations))).await
}

async fn take_next(
    tx: &Transaction<'_>,
    migrations: &[Migration],
) -> Result<Option<&'static str>, DbError> {
    tx.query_one("SELECT version FROM tollgate.schema_version WHERE version = 0 FOR UPDATE", &[])
        .await?;
    let taken = read_taken(&tx.query(ALL_TAKEN, &[]).await?)?;
    if compare(&taken, migrations).is_some_and(|found| !matches!(found, SchemaState::Behind { .. }))
    {
        // Said by the check that follows.
        return Ok(None);
    }
    let Some(step) = migrations.iter().find(|step| !taken.contains_key(&step.version)) else {
        return Ok(None);
    };
    tx.batch(step.sql).await.map_err(|error| match error {
        DbError::Failed(cause) => {
            DbError::Failed(format!("step {} ({}): {cause}", step.version, step.name))
        }
        error => error,
    })?;
    tx.execute(
        "INSERT INTO tollgate.schema_version (version, name, sha256) VALUES ($1, $2, $3)",
        &[&step.version, &step.name, &digest(step.sql)],
    )
    .await?;
    Ok(Some(step.name))
}

fn digest(sql: &str) -> String {
    Sha256::digest(sql.as_bytes()).iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests;
