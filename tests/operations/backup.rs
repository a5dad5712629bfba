//! A backup as docs/operations.md describes it.

use std::path::Path;
use std::process::{Command, Output};

use crate::harness::{Admin, Demo, sha256};
use serde_json::json;

fn tollgate(args: &[&str], directories: &[(&str, &Path)]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tollgate"));
    command.args(args);
    for (name, path) in directories {
        command.arg(name).arg(path);
    }
    command.output().expect("the binary runs")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_running_gateway_is_backed_up_and_restored() {
    let data = tempfile::tempdir().expect("a directory");
    let copies = tempfile::tempdir().expect("a directory");
    let (backup, restored) = (copies.path().join("backup"), copies.path().join("restored"));
    let mut demo = Demo::on(data.path());
    let customer = Admin::of(&demo).customer("5.00").await;
    demo.api_key.clone_from(&customer.key);
    let body = json!({"model": "gpt-4o-mini", "messages": [{"role": "user", "content": "hi"}]});
    let call = |demo: &Demo| {
        demo.post("/v1/chat/completions", &body, "").bearer_auth(&demo.api_key).send()
    };
    for _ in 0..20 {
        assert_eq!(call(&demo).await.expect("an answer").status(), 200);
    }
    let before = Admin::of(&demo).settled(&customer.account).await;
    let made = tollgate(&["backup"], &[("--data", data.path()), ("--to", &backup)]);
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    // What happens after the copy is not in it.
    assert_eq!(call(&demo).await.expect("an answer").status(), 200);
    let verified = tollgate(&["ledger", "verify"], &[("--data", &backup)]);
    let report = String::from_utf8_lossy(&verified.stdout);
    assert!(verified.status.success() && report.contains("the ledger is sound"), "{report}");

    let made = tollgate(&["restore", "--json"], &[("--from", &backup), ("--data", &restored)]);
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let printed: serde_json::Value = serde_json::from_slice(&made.stdout).expect("JSON");
    assert_eq!(printed["left_out"]["records"], 0);

    let token = sha256(demo.admin_token.as_bytes());
    let mut restored = Demo::on(&restored);
    let after = Admin::of(&restored).balance(&customer.account).await;
    assert_eq!((after.granted, after.spent), (before.granted, before.spent), "{after:?}");
    assert_eq!(sha256(restored.admin_token.as_bytes()), token, "the same token");
    restored.api_key.clone_from(&customer.key);
    assert_eq!(call(&restored).await.expect("an answer").status(), 200, "the key works on");
}
