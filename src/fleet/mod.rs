//! Several gateways that spend the same money.
//!
//! Each node keeps a journal and a ledger of its own and spends from leases. What all of them share
//! stands in PostgreSQL: the treasury, the directory of what operators and customers wrote, tasks and
//! limits. `docs/fleet.md` says what is promised; ADR 14 why it is made so.
//!
//! | File | What it knows |
//! |---|---|
//! | `lease` | what a node and the treasury say to each other |
//! | `borrower` | the node's side of leases, pure |
//! | `treasury` | the treasury's rules, pure: what simulations run over |
//! | `postgres` | the database: connections, transactions, the schema, and the SQL of all the above |

pub mod borrower;
pub mod lease;
pub mod postgres;
pub mod treasury;
