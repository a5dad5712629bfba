//! The database's side of moving a ledger in, and of moving all data out.

use super::columns::{amount, count, encoded, id, number};
use super::history::put_history;
use super::usage::ALL_UNITS;
use super::{Db, DbError, PostgresOptions, Transaction, migrate};
use tollgate_ledger::moving::{AccountTally, MovePart, MovedSubmit, MovedTask, Tallies};
use tollgate_ledger::{Account, AccountId, FleetHistory, Record, Seq};
use tollgate_money::money::Nanousd;

mod out;
mod tasks;

pub(crate) use self::out::NodeOut;
pub(super) use self::out::is_still_here;

/// Rows that one statement writes.
const ROWS_MAX: usize = 2_000;
/// Writes of a ledger that one query reads back, some 64 KB each.
const WRITES_MAX: i64 = 100;

/// The progress of a ledger that moves in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct MovedIn {
    /// The number of the ledger's last record.
    pub(crate) last: Seq,
    /// The hash chain there.
    pub(crate) chain: String,
    /// The number of transferred parts.
    pub(crate) parts: u64,
    /// The compared counts of the finished move; `None` before that.
    pub(crate) proof: Option<String>,
}

/// The last transaction of a move, which makes the ledger part of the fleet.
pub(crate) struct Finish<'a> {
    /// The id of the ledger.
    pub(crate) ledger: &'a str,
    /// The end of the directory when it was looked for what collides.
    pub(crate) head: Seq,
    /// The number of its parts.
    pub(crate) parts: u64,
    /// The writes that wait for it.
    pub(crate) writes: u64,
    /// The accounts of the ledger.
    pub(crate) accounts: Vec<Account>,
    /// The grants and refunds of the ledger.
    pub(crate) given: &'a [Record],
    /// Usage, and calls in doubt.
    pub(crate) history: Vec<FleetHistory>,
    /// The tasks of the ledger that are kept.
    pub(crate) tasks: Vec<&'a MovedTask>,
    /// The idempotency records of those tasks.
    pub(crate) submits: Vec<MovedSubmit>,
    /// The expected counts, also as text.
    pub(crate) tallies: &'a Tallies,
    /// The stored record of the comparison.
    pub(crate) proof: String,
}

/// The outcome of a move.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum MoveOutcome {
    /// The ledger is a part of the fleet.
    Done,
    /// Something was written into the directory meanwhile; nothing has changed.
    Behind,
    /// The counts would differ; nothing has changed.
    Differs(Vec<String>),
}

impl Db {
    /// The database as it is for moving ledgers: with the schema of this version, and with time for
    /// long transactions.
    ///
    /// # Errors
    /// What to do about it, in words for the operator.
    pub async fn for_moving(options: &PostgresOptions) -> Result<Self, DbError> {
        let db = Self::for_migrations(options).await?;
        migrate::check(&db).await?;
        Ok(db)
    }

    /// Returns the progress of a ledger that moves in; `None` if it never began.
    pub(crate) async fn moved_in(&self, ledger: &str) -> Result<Option<MovedIn>, DbError> {
        const SQL: &str =
            "SELECT last_seq, chain, parts, proof FROM tollgate.moved_in WHERE ledger = $1";
        let rows = self.query(SQL, &[&ledger]).await?;
        let Some(row) = rows.first() else { return Ok(None) };
        Ok(Some(MovedIn {
            last: count(row.try_get(0)?),
            chain: row.try_get(1)?,
            parts: count(row.try_get(2)?),
            proof: row.try_get(3)?,
        }))
    }

    /// Filters the holds that belong to calls in doubt or to tasks in the database.
    pub(crate) async fn existing_holds(&self, holds: &[Seq]) -> Result<Vec<Seq>, DbError> {
        let holds: Vec<i64> = holds.iter().map(|hold| number(*hold)).collect();
        let sql = "SELECT hold FROM tollgate.in_doubt WHERE hold = ANY($1)
                   UNION SELECT hold FROM tollgate.tasks WHERE hold = ANY($1)";
        let mut found = Vec::new();
        for row in self.query(sql, &[&holds]).await? {
            found.push(count(row.try_get(0)?));
        }
        Ok(found)
    }

    /// Begins or resumes a move: deletes the rows of an earlier state of the ledger, whose lines belong to
    /// these accounts. Returns the number of transferred parts.
    pub(crate) async fn begin_move(
        &self,
        ledger: &str,
        last: Seq,
        chain: &str,
        accounts: &[String],
    ) -> Result<u64, DbError> {
        let begin = self.transact(|tx| {
            Box::pin(async move { begin_move(tx, ledger, last, chain, accounts).await })
        });
        begin.await
    }

    /// Writes down a part of a ledger, once.
    pub(crate) async fn put_part(
        &self,
        ledger: &str,
        part: &MovePart,
        first_write: u64,
    ) -> Result<(), DbError> {
        let writes = part.writes.iter().map(encoded).collect::<Result<Vec<_>, _>>()?;
        let history = FleetHistory { entries: part.entries.clone(), ..FleetHistory::default() };
        let (writes, history) = (&writes, &history);
        let put = self.transact(|tx| {
            Box::pin(async move {
                // Each part once and in its order: a repetition finds the number taken.
                let begun = "UPDATE tollgate.moved_in SET parts = $2
                             WHERE ledger = $1 AND parts + 1 = $2 AND finished_at IS NULL";
                if tx.execute(begun, &[&ledger, &number(part.number)]).await? == 0 {
                    return has_part(tx, ledger, part.number).await;
                }
                for (writes, at) in writes.chunks(ROWS_MAX).zip(0_u64..) {
                    let first = first_write.saturating_add(at.saturating_mul(ROWS_MAX as u64));
                    let numbers: Vec<i64> = (first..).take(writes.len()).map(number).collect();
                    let sql = "INSERT INTO tollgate.moving (ledger, number, records)
                        SELECT $1, d.number, d.records
                        FROM unnest($2::bigint[], $3::bytea[]) AS d (number, records)";
                    tx.execute(sql, &[&ledger, &numbers, &writes]).await?;
                }
                put_history(tx, history).await
            })
        });
        put.await
    }

    /// Reads back the writes of a ledger behind one of them.
    pub(crate) async fn moving_writes(
        &self,
        ledger: &str,
        after: u64,
    ) -> Result<Vec<Vec<Record>>, DbError> {
        let sql = "SELECT records FROM tollgate.moving WHERE ledger = $1 AND number > $2
                   ORDER BY number LIMIT $3";
        let rows = self.query(sql, &[&ledger, &number(after), &WRITES_MAX]).await?;
        let decode = |row: &tokio_postgres::Row| {
            let records = postcard::from_bytes(row.try_get(0)?);
            records.map_err(|error| DbError::Failed(format!("a write cannot be read: {error}")))
        };
        rows.iter().map(decode).collect()
    }

    /// Adds a completely transferred ledger to the fleet: its writes to the directory, its money to the
    /// accounts. The result is compared before it becomes visible.
    pub(crate) async fn finish_move(&self, finish: &Finish<'_>) -> Result<MoveOutcome, DbError> {
        let finished = self.transact_or_refuse(move |tx| {
            Box::pin(async move {
                let finished = finish_move(tx, finish).await?;
                Ok(if finished == MoveOutcome::Done { Ok(finished) } else { Err(finished) })
            })
        });
        let finished = finished.await?;
        if finished.is_ok() {
            self.announce();
        }
        Ok(finished.unwrap_or_else(|refused| refused))
    }
}

async fn begin_move(
    tx: &Transaction<'_>,
    ledger: &str,
    last: Seq,
    chain: &str,
    accounts: &[String],
) -> Result<u64, DbError> {
    let sql = "INSERT INTO tollgate.moved_in (ledger, last_seq, chain, parts)
               VALUES ($1, $2, $3, 0) ON CONFLICT DO NOTHING";
    tx.execute(sql, &[&ledger, &number(last), &chain]).await?;
    let sql = "SELECT parts, chain, finished_at IS NOT NULL FROM tollgate.moved_in
               WHERE ledger = $1 FOR UPDATE";
    let row = tx.query_one(sql, &[&ledger]).await?;
    let (parts, stored_chain): (i64, &str) = (row.try_get(0)?, row.try_get(1)?);
    if stored_chain == chain || row.try_get(2)? {
        return Ok(count(parts));
    }
    // The gateway was started again in between. Nothing that is here is seen by anybody.
    for sql in [
        "DELETE FROM tollgate.moving WHERE ledger = $1 AND cardinality($2::text[]) >= 0",
        "DELETE FROM tollgate.entries WHERE account = ANY($2) AND $1 <> ''
         AND account NOT IN (SELECT id FROM tollgate.accounts)",
    ] {
        tx.execute(sql, &[&ledger, &accounts]).await?;
    }
    let sql = "UPDATE tollgate.moved_in SET last_seq = $2, chain = $3, parts = 0 WHERE ledger = $1";
    tx.execute(sql, &[&ledger, &number(last), &chain]).await?;
    Ok(0)
}

/// True if the part was written before: another process moves the same ledger, or an answer was lost.
async fn has_part(tx: &Transaction<'_>, ledger: &str, part: u64) -> Result<(), DbError> {
    let sql = "SELECT 1 FROM tollgate.moved_in WHERE ledger = $1 AND parts >= $2";
    match tx.query_opt(sql, &[&ledger, &number(part)]).await? {
        Some(_) => Ok(()),
        None => Err(DbError::Failed(
            "another state of this ledger is being moved in at the same time".to_owned(),
        )),
    }
}

async fn finish_move(tx: &Transaction<'_>, finish: &Finish<'_>) -> Result<MoveOutcome, DbError> {
    let Finish { ledger, head, parts, .. } = *finish;
    let sql = "UPDATE tollgate.moved_in SET finished_at = now(), proof = $3
               WHERE ledger = $1 AND parts = $2 AND finished_at IS NULL";
    // This locks the ledger's row: another process that finishes it too waits here, and finds it done.
    if tx.execute(sql, &[&ledger, &number(parts), &finish.proof]).await? == 0 {
        let sql = "SELECT 1 FROM tollgate.moved_in WHERE ledger = $1 AND finished_at IS NOT NULL";
        return match tx.query_opt(sql, &[&ledger]).await? {
            Some(_) => Ok(MoveOutcome::Done),
            None => Err(DbError::Failed("parts of the ledger are missing".to_owned())),
        };
    }
    put_accounts(tx, &finish.accounts).await?;
    put_given(tx, finish.given).await?;
    for history in &finish.history {
        put_history(tx, history).await?;
    }
    tasks::put(tx, &finish.tasks, &finish.submits).await?;
    let ids: Vec<String> = finish.accounts.iter().map(|account| account.id.to_string()).collect();
    let mut found = tallies(tx, &ids).await?;
    // These were compared when the writes and the lines were read back.
    (found.codes, found.uses) = (finish.tallies.codes, finish.tallies.uses);
    for (account, tally) in &finish.tallies.accounts {
        let found = found.of(*account);
        (found.keys, found.lines) = (tally.keys, tally.lines);
    }
    let differences = finish.tallies.differences(&found);
    if !differences.is_empty() {
        return Ok(MoveOutcome::Differs(differences));
    }
    // Writers of the directory wait from here on, so it stands last.
    let sql = "UPDATE tollgate.head SET seq = seq + $2 WHERE id = 1 AND seq = $1
               AND moved_out IS NULL";
    if tx.execute(sql, &[&number(head), &number(finish.writes)]).await? == 0 {
        return Ok(MoveOutcome::Behind);
    }
    let sql = "INSERT INTO tollgate.directory (seq, write_id, what, account, subject, records)
        SELECT $2::bigint + number, 'moved-' || ledger || '-' || number, 'ledger.move_in', $3,
            ledger, records
        FROM tollgate.moving WHERE ledger = $1";
    let house = AccountId::OPERATOR.to_string();
    let written = tx.execute(sql, &[&ledger, &number(head), &house]).await?;
    if written != finish.writes {
        let why = format!("{written} writes are here of {}", finish.writes);
        return Ok(MoveOutcome::Differs(vec![why]));
    }
    tx.execute("DELETE FROM tollgate.moving WHERE ledger = $1", &[&ledger]).await?;
    Ok(MoveOutcome::Done)
}

async fn put_accounts(tx: &Transaction<'_>, accounts: &[Account]) -> Result<(), DbError> {
    let sql = "INSERT INTO tollgate.accounts
        (id, name, created_at, granted, available, held, spent, debt, written_off, credit)
        SELECT * FROM unnest($1::text[], $2::text[], $3::bigint[], $4::bigint[], $5::bigint[],
            $6::bigint[], $7::bigint[], $8::bigint[], $9::bigint[], $10::bigint[])";
    for accounts in accounts.chunks(ROWS_MAX) {
        let ids: Vec<String> = accounts.iter().map(|account| account.id.to_string()).collect();
        let names: Vec<&str> = accounts.iter().map(|account| &*account.name).collect();
        let created: Vec<i64> =
            accounts.iter().map(|account| number(account.created_at.0)).collect();
        let part = |part: fn(&Account) -> Nanousd| -> Vec<i64> {
            accounts.iter().map(|account| part(account).get()).collect()
        };
        let params: [super::Param<'_>; 10] = [
            &ids,
            &names,
            &created,
            &part(|account| account.balance.granted),
            &part(|account| account.balance.available),
            &part(|account| account.balance.held),
            &part(|account| account.balance.spent),
            &part(|account| account.balance.debt),
            &part(|account| account.written_off),
            &part(|account| account.balance.credit),
        ];
        tx.execute(sql, &params).await?;
    }
    Ok(())
}

async fn put_given(tx: &Transaction<'_>, given: &[Record]) -> Result<(), DbError> {
    for given in given.chunks(ROWS_MAX) {
        let mut grants = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        let mut refunds = (Vec::new(), Vec::new(), Vec::new(), Vec::new(), Vec::new(), Vec::new());
        let mut write_offs = (Vec::new(), Vec::new(), Vec::new(), Vec::new(), Vec::new());
        for record in given {
            match record {
                Record::Granted { account, id, amount, at } => {
                    grants.0.push(account.to_string());
                    grants.1.push(id.as_str());
                    grants.2.push(amount.get());
                    grants.3.push(number(at.0));
                }
                Record::Refunded { account, id, hold, amount, charged, at } => {
                    refunds.0.push(account.to_string());
                    refunds.1.push(id.as_str());
                    refunds.2.push(number(hold.number()));
                    refunds.3.push(amount.get());
                    refunds.4.push(charged.get());
                    refunds.5.push(number(at.0));
                }
                Record::WrittenOff { account, id, amount, note, at } => {
                    write_offs.0.push(account.to_string());
                    write_offs.1.push(id.as_str());
                    write_offs.2.push(amount.get());
                    write_offs.3.push(note.as_str());
                    write_offs.4.push(number(at.0));
                }
                _ => {}
            }
        }
        let sql = "INSERT INTO tollgate.grants (account, id, amount, at)
            SELECT * FROM unnest($1::text[], $2::text[], $3::bigint[], $4::bigint[])";
        tx.execute(sql, &[&grants.0, &grants.1, &grants.2, &grants.3]).await?;
        let sql = "INSERT INTO tollgate.refunds (account, id, hold, amount, charged, at)
            SELECT * FROM unnest($1::text[], $2::text[], $3::bigint[], $4::bigint[], $5::bigint[],
                $6::bigint[])";
        let params: [super::Param<'_>; 6] =
            [&refunds.0, &refunds.1, &refunds.2, &refunds.3, &refunds.4, &refunds.5];
        tx.execute(sql, &params).await?;
        let sql = "INSERT INTO tollgate.write_offs (account, id, amount, note, at)
            SELECT * FROM unnest($1::text[], $2::text[], $3::bigint[], $4::text[], $5::bigint[])";
        let params: [super::Param<'_>; 5] =
            [&write_offs.0, &write_offs.1, &write_offs.2, &write_offs.3, &write_offs.4];
        tx.execute(sql, &params).await?;
    }
    Ok(())
}

/// The field of a tally that a table is counted in.
type TallyField = fn(&mut AccountTally) -> &mut u64;

/// Counts the database's rows of accounts, except for the directory and statements.
async fn tallies(tx: &Transaction<'_>, ids: &[String]) -> Result<Tallies, DbError> {
    let mut tallies = Tallies::default();
    let sql = "SELECT id, granted, available + leased, held, spent + suspense, debt,
                   written_off, credit FROM tollgate.accounts WHERE id = ANY($1)";
    for row in tx.query(sql, &[&ids]).await? {
        let money = |column| amount(&row, column);
        *tallies.of(id(row.try_get(0)?)?) = AccountTally {
            granted: money(1)?,
            available: money(2)?,
            held: money(3)?,
            spent: money(4)?,
            debt: money(5)?,
            written_off: money(6)?,
            credit: money(7)?,
            ..AccountTally::default()
        };
    }
    let counted: [(&str, TallyField); 6] = [
        ("grants", |tally| &mut tally.grants),
        ("refunds", |tally| &mut tally.refunds),
        ("write_offs", |tally| &mut tally.write_offs),
        ("losses", |tally| &mut tally.losses),
        ("in_doubt", |tally| &mut tally.doubts),
        ("tasks", |tally| &mut tally.tasks),
    ];
    for (table, of) in counted {
        // A row that keeps a task from being opened is none.
        let more = if table == "tasks" { "AND stage <> 'never'" } else { "" };
        let sql = format!(
            "SELECT account, count(*) FROM tollgate.{table} WHERE account = ANY($1) {more}
             GROUP BY account"
        );
        for row in tx.query(&sql, &[&ids]).await? {
            *of(tallies.of(id(row.try_get(0)?)?)) = count(row.try_get(1)?);
        }
    }
    let sql = "SELECT account, sum(calls)::bigint,
            LEAST(sum(charged) + sum(owed) + sum(written_off), 9223372036854775807)::bigint
        FROM tollgate.usage WHERE account = ANY($1) GROUP BY account";
    for row in tx.query(sql, &[&ids]).await? {
        let tally = tallies.of(id(row.try_get(0)?)?);
        tally.calls = count(row.try_get(1)?);
        tally.cost = Nanousd::new(row.try_get(2)?);
    }
    for row in tx.query(&ALL_UNITS, &[&ids]).await? {
        let tally = tallies.of(id(row.try_get(0)?)?);
        tally.units = tally.units.saturating_add(count(row.try_get(1)?));
    }
    Ok(tallies)
}
