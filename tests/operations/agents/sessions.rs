//! The sessions, as proofs: each agent over every dialect, of which a short run plays a share, and all of them.

use super::agent::Agent;
use super::cell::Cell;
use super::page::{self, Row};
use super::upstream::Upstream;
use crate::harness::rounds;

/// Plays the cells of an agent, writes or compares their rows of the page, and fails for those that are no
/// success.
fn play(cells: impl Iterator<Item = Cell>) {
    let rows: Vec<Row> = cells
        .map(|cell| {
            let result = cell.result();
            if let Err(fault) = &result {
                println!("{cell:?}: {fault}");
            }
            Row::new(cell, &result)
        })
        .collect();
    page::check(&rows);
}

/// Each dialect once, with the agent's names in turn. A short run plays two dialects, from `first` on.
fn share(agent: Agent, first: usize) {
    let models = agent.models().iter().cycle();
    let cells = Upstream::ALL.into_iter().zip(models);
    let cells = cells.map(|(upstream, model)| Cell { agent, model, upstream });
    let mut cells: Vec<Cell> = cells.filter(|cell| !is_refused_as_it_is(*cell)).collect();
    let (all, share) = (cells.len(), rounds(5).max(2));
    cells.rotate_left(first % all);
    cells.truncate(usize::try_from(share).expect("few"));
    play(cells.into_iter());
}

#[test]
#[ignore = "a proof: it plays five sessions"]
fn claude_code_over_every_dialect() {
    share(Agent::ClaudeCode, 0);
}

#[test]
#[ignore = "a proof: it plays five sessions"]
fn codex_over_every_dialect() {
    share(Agent::CodexHttp, 1);
}

#[test]
#[ignore = "a proof: it plays five sessions"]
fn codex_over_websockets_and_every_dialect() {
    share(Agent::CodexWebsocket, 2);
}

#[test]
#[ignore = "a proof: it plays five sessions"]
fn opencode_over_every_dialect() {
    share(Agent::OpencodeChat, 3);
}

#[test]
#[ignore = "a proof: it plays five sessions"]
fn gemini_cli_over_every_dialect() {
    share(Agent::GeminiCli, 4);
}

/// Cells that are refused, as `docs/clients.md` says.
fn is_refused_as_it_is(cell: Cell) -> bool {
    let is_refused = match cell.agent {
        // opencode marks prompts of these names for a cache, which strict providers of chat completions
        // refuse. What is relayed byte for byte is between the two.
        // GPT-5.4 and later take tools beside reasoning over responses alone, where the shipped catalogue
        // sends such requests (`translated.chat_tools`).
        Agent::OpencodeChat => cell.model.starts_with("claude") || cell.model == "gpt-5.5",
        _ => false,
    };
    is_refused && cell.is_native()
}

/// All names of all agents, over all dialects: some ten minutes.
#[test]
#[ignore = "a proof: it plays 90 sessions"]
fn every_name_over_every_dialect() {
    let agents = [
        Agent::ClaudeCode,
        Agent::CodexHttp,
        Agent::CodexWebsocket,
        Agent::OpencodeChat,
        Agent::OpencodeResponses,
        Agent::OpencodeMessages,
        Agent::GeminiCli,
    ];
    for agent in agents {
        for model in agent.models() {
            let cells = Upstream::ALL.into_iter().map(|upstream| Cell { agent, model, upstream });
            play(cells.filter(|cell| !is_refused_as_it_is(*cell)));
        }
    }
}
