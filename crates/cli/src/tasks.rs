//! `tollgate tasks`: manage asynchronous tasks, such as video.

use std::process::ExitCode;

use clap::{Args, Subcommand};
use serde_json::json;

use super::accounts;
use super::admin_call::{AdminRequest, encoded};
use super::exit::CODES;
use super::output::{IdempotencyOptions, OutputOptions, PageOptions};
use super::sheets::{ANNOUNCED, TASK, TASKS, TASKS_IN_DOUBT};

/// Manage asynchronous tasks, such as video.
#[derive(Debug, Subcommand)]
pub(super) enum TasksCommand {
    /// List tasks, newest first.
    #[command(after_help = format!("\
Examples:
  tollgate tasks list
  tollgate tasks list --account acct_3f1c0a5b7d9e2468 --state failed

{CODES}"))]
    List {
        /// Only tasks of this account.
        #[arg(long, value_name = "ACCOUNT")]
        account: Option<String>,
        /// Only tasks in this state: `open`, `in_doubt`, `succeeded`, `failed`, `expired` or `cancelled`.
        #[arg(long, value_name = "STATE")]
        state: Option<String>,
        #[command(flatten)]
        pages: PageOptions,
        #[command(flatten)]
        output: OutputOptions,
    },
    /// Show a task; with `--json` also the customer's record of it.
    #[command(after_help = format!("\
Examples:
  tollgate tasks show acct_3f1c0a5b7d9e2468 task_019c1402a1f0d3b2c4a5000000000007

{CODES}"))]
    Show {
        /// Id of the account.
        account: String,
        /// Id of the task.
        task: String,
        #[command(flatten)]
        output: OutputOptions,
    },
    /// List submits in doubt, oldest first: the upstream may have accepted them or not.
    #[command(after_help = format!("\
Examples:
  tollgate tasks in-doubt

{CODES}"))]
    InDoubt {
        #[command(flatten)]
        output: OutputOptions,
    },
    /// Resolve a submit in doubt, deciding what the customer pays.
    #[command(after_help = format!("\
Examples:
  tollgate tasks resolve task_019c1402a1f0d3b2c4a5000000000007 --void
  tollgate tasks resolve task_019c1402a1f0d3b2c4a5000000000007 --charge 0.35

{CODES}"))]
    Resolve {
        /// Id of the task.
        task: String,
        #[command(flatten)]
        end: TaskEndOptions,
        #[command(flatten)]
        once: IdempotencyOptions,
        #[command(flatten)]
        output: OutputOptions,
    },
    /// Repeat the webhook announcement of a task's end.
    #[command(after_help = format!("\
Examples:
  tollgate tasks announce acct_3f1c0a5b7d9e2468 task_019c1402a1f0d3b2c4a5000000000007

{CODES}"))]
    Announce {
        /// Id of the account.
        account: String,
        /// Id of the task.
        task: String,
        #[command(flatten)]
        once: IdempotencyOptions,
        #[command(flatten)]
        output: OutputOptions,
    },
}

/// Charge to the customer.
#[derive(Args, Debug)]
#[group(required = true, multiple = false)]
pub(super) struct TaskEndOptions {
    /// The customer pays nothing.
    #[arg(long)]
    void: bool,
    /// The customer pays this amount in US dollars, at most the hold.
    #[arg(long, value_name = "AMOUNT")]
    charge: Option<String>,
}

/// Path of an account's task.
fn path(account: &str, task: &str) -> String {
    format!("{}/tasks/{}", accounts::path(account), encoded(task))
}

impl TasksCommand {
    pub(super) fn run(self) -> anyhow::Result<ExitCode> {
        match self {
            Self::List { account, state, pages, output } => {
                let query = [("account", account.as_deref()), ("state", state.as_deref())];
                output.list("/admin/v1/tasks", &query, &pages, &TASKS)
            }
            Self::Show { account, task, output } => {
                output.show(&AdminRequest::get(path(&account, &task)), &TASK)
            }
            Self::InDoubt { output } => {
                output.show(&AdminRequest::get("/admin/v1/tasks/in-doubt"), &TASKS_IN_DOUBT)
            }
            Self::Resolve { task, end, once, output } => {
                let body = match end.charge {
                    // clap requires one of the two, so no amount means `--void`.
                    None => json!({"action": "void"}),
                    Some(amount) => json!({"action": "charge", "amount": amount}),
                };
                let ask = AdminRequest::post(format!("/admin/v1/tasks/{}/resolve", encoded(&task)));
                output.show(&ask.with(body).once(&once.id()), &TASK)
            }
            Self::Announce { account, task, once, output } => {
                let ask = AdminRequest::post(format!("{}/announce", path(&account, &task)));
                output.show(&ask.once(&once.id()), &ANNOUNCED)
            }
        }
    }
}
