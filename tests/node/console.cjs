// A customer's first day in a real browser: sign up, key, playground, balance, revoke. Then a picture of
// every page. Arguments: the gateway's address, the browser, a directory for pictures or nothing.
const { chromium } = require("playwright-core");
const assert = require("node:assert");
const path = require("node:path");

const [base, executablePath, pictures] = process.argv.slice(2);
const CONSOLE = `${base}/console`;
const PASSWORD = "four words in here";
const WIDTHS = [1280, 375];
const SCHEMES = ["light", "dark"];

// Whatever the browser complains of is a fault: a blocked script, a missing file, an exception.
const complaints = [];

function watch(page) {
  page.on("console", (message) => {
    if (message.type() === "error" || message.type() === "warning") {
      complaints.push(`${page.url()}: ${message.text()}`);
    }
  });
  page.on("pageerror", (error) => complaints.push(`${page.url()}: ${error}`));
  page.on("requestfailed", (request) => {
    // What a page stops itself, or a picture of a page that is left, is no fault.
    if (request.failure()?.errorText !== "net::ERR_ABORTED") {
      complaints.push(`${request.url()}: ${request.failure()?.errorText}`);
    }
  });
}

// The browser repeats each answer that is a refusal; one that is meant to be is no fault.
function expectComplaint(status) {
  const expected = complaints.findIndex((text) => text.includes(status));
  assert(expected >= 0, `the browser does not say ${status}: ${complaints}`);
  complaints.splice(expected, 1);
}

const shown = (page, text) => page.getByText(text).first().waitFor();

async function signUp(page) {
  await page.goto(CONSOLE);
  await page.getByRole("link", { name: "Sign up" }).click();
  await page.getByLabel("Name", { exact: true }).fill("Ann & Sons");
  await page.getByLabel("E-mail").fill("ann@example.com");
  await page.getByLabel("Password").fill(PASSWORD);
  await page.getByRole("button", { name: "Sign up" }).click();
  await shown(page, "$5.00");
}

async function firstKey(page) {
  await page.getByRole("button", { name: "Make my first key" }).click();
  const key = await page.locator("#key").textContent();
  assert.match(key, /^sk-[\w-]{43}$/);
  assert.match(await page.locator("#curl").textContent(), new RegExp(`${base}/v1/chat/completions`));
  await page.locator("#key + button").click();
  await page.getByRole("button", { name: "Copied" }).waitFor();
  assert.strictEqual(await page.evaluate(() => navigator.clipboard.readText()), key);
  return key;
}

async function isShownOnce(page, key) {
  await page.getByRole("link", { name: "All keys" }).click();
  await shown(page, "My first key");
  assert(!(await page.content()).includes(key), "the list shows a key");
  // The browser has kept nothing, and asks before it sends the form again.
  await assert.rejects(page.goBack(), /ERR_CACHE_MISS/);
  expectComplaint("ERR_CACHE_MISS");
  await page.close();
}

async function chats(page) {
  await page.goto(`${CONSOLE}/playground`);
  // The answer is seen growing: it streams.
  await page.evaluate(() => {
    window.lengths = new Set();
    new MutationObserver(() => {
      const out = document.querySelector(".result div.out");
      if (out) window.lengths.add(out.textContent.length);
    }).observe(document.getElementById("results"), { childList: true, subtree: true, characterData: true });
  });
  const evil = `<img src=x onerror="document.title='run'">`;
  await page.getByLabel("Prompt").fill(evil);
  await page.getByRole("button", { name: "Send" }).click();
  await shown(page, "Done.");
  await page.locator(".cost", { hasText: /^Cost: \$0\.0*[1-9]/ }).waitFor();
  const sizes = await page.evaluate(() => window.lengths.size);
  assert(sizes > 3, `the answer came in ${sizes} pieces`);
  assert(await page.locator(".result", { hasText: evil }).count(), "the prompt is shown as it was typed");
  assert.notStrictEqual(await page.title(), "run");
  assert.strictEqual(await page.locator("#results img").count(), 0, "a prompt became HTML");
  // The conversation goes on with what was said.
  await page.getByLabel("Prompt").fill("And then?");
  assert.match(await page.locator("#code").textContent(), /Simulated upstreams answer/);
  return page.locator(".cost").first().textContent();
}

async function others(page) {
  for (const [kind, prompt, what] of [
    ["Image", "A lighthouse", "#results .media img"],
    ["Speech", "Hello", "#results audio"],
    ["Video", "A lighthouse at night", "#results video"],
  ]) {
    await page.getByRole("button", { name: kind, exact: true }).click();
    await page.getByLabel("Prompt").fill(prompt);
    await page.getByRole("button", { name: "Send" }).click();
    await page.locator(what).first().waitFor({ timeout: 30_000 });
    await page.locator(".result", { hasText: prompt }).locator(".cost", { hasText: "Cost: $" }).waitFor();
  }
  const width = await page.locator("#results .media img").first().evaluate(async (image) => {
    await image.decode();
    return image.naturalWidth;
  });
  assert(width > 0, "the picture is one");
}

async function copiesCode(page) {
  await page.getByRole("button", { name: "Chat", exact: true }).click();
  await page.getByLabel("Prompt").fill("It's `$HOME`");
  const code = {};
  for (const language of ["curl", "Python", "JavaScript"]) {
    await page.getByRole("button", { name: language, exact: true }).click();
    code[language] = await page.locator("#code").textContent();
  }
  assert.match(code.curl, /'\\''s `\$HOME`/);
  return code;
}

// What the API says to a key that may do nothing is what the page says.
async function showsErrors(page) {
  await page.route("**/v1/chat/completions", async (route) => {
    const message = "You have <b>no money</b>.";
    await route.fulfill({ status: 402, json: { error: { message } } });
  });
  await page.getByLabel("Prompt").fill("Hello");
  await page.getByRole("button", { name: "Send" }).click();
  await shown(page, "402: You have <b>no money</b>.");
  await page.unroute("**/v1/chat/completions");
  expectComplaint("402");
}

async function isOnTheBalance(page, cost) {
  await page.goto(`${CONSOLE}/balance`);
  assert(!(await page.title()).startsWith("There is no such page"), "the balance has a page");
  const text = await page.locator("main").textContent();
  const billed = cost.replace("Cost: $", "");
  assert(text.includes(billed), `the balance has an entry of ${billed}`);
}

async function calls(key) {
  const answer = await fetch(`${base}/v1/chat/completions`, {
    method: "POST",
    headers: { authorization: `Bearer ${key}`, "content-type": "application/json" },
    body: JSON.stringify({ model: "gpt-4o-mini", messages: [{ role: "user", content: "hi" }] }),
  });
  return answer.status;
}

async function revokes(page, key) {
  assert.strictEqual(await calls(key), 200);
  await page.goto(`${CONSOLE}/keys`);
  await page.getByRole("link", { name: "My first key" }).click();
  await page.getByText("Revoke this key…").click();
  await page.getByRole("button", { name: "Revoke for good" }).click();
  await shown(page, "The key is revoked.");
  const status = await calls(key);
  assert(status === 401, `a revoked key was answered with ${status}`);
}

// Every page by the keyboard alone: the first stop leads to the content, and what has the focus shows it.
async function works(page) {
  await page.goto(`${CONSOLE}/keys`);
  await page.keyboard.press("Tab");
  assert.strictEqual(await page.evaluate(() => document.activeElement.textContent), "Skip to content");
  await page.keyboard.press("Enter");
  await page.keyboard.press("Tab");
  assert.strictEqual(await page.evaluate(() => document.activeElement.textContent), "Make a key");
}

async function picture(browser, state, name, address, prepare) {
  for (const colorScheme of SCHEMES) {
    for (const width of WIDTHS) {
      const context = await browser.newContext({
        storageState: state, colorScheme, viewport: { width, height: 900 },
      });
      const page = await context.newPage();
      watch(page);
      await page.goto(address);
      await prepare?.(page);
      const wide = await page.evaluate(() => document.documentElement.scrollWidth);
      assert(wide <= width, `${name} is ${wide} px wide on a screen of ${width}`);
      if (pictures) {
        const file = path.join(pictures, `console-${name}-${width}-${colorScheme}.png`);
        await page.screenshot({ path: file, fullPage: true });
      }
      await context.close();
    }
  }
}

async function allPictures(browser, state) {
  const one = (name, address, prepare) => picture(browser, state, name, `${CONSOLE}${address}`, prepare);
  await one("start", "");
  for (const name of ["keys", "balance", "usage", "prices", "requests", "videos", "webhooks", "account"]) {
    await one(name, `/${name}`);
  }
  await one("key-new", "/keys/new", (page) => page.getByText("Choose models").click());
  await one("key", "/keys", async (page) => {
    await page.getByRole("link", { name: "Ann's key" }).click();
    await page.waitForURL(`${CONSOLE}/keys/*`);
  });
  await one("playground", "/playground", async (page) => {
    await page.getByLabel("Prompt").fill("Say something about lighthouses.");
    await page.getByRole("button", { name: "Send" }).click();
    await page.locator(".cost", { hasText: "Cost: $" }).waitFor();
  });
  for (const name of ["login", "signup"]) {
    await picture(browser, undefined, name, `${CONSOLE}/${name}`);
  }
}

async function otherKey(page) {
  await page.goto(`${CONSOLE}/keys/new`);
  await page.getByLabel("Name", { exact: true }).fill("Ann's key");
  await page.getByLabel("Dollars a day").fill("nothing");
  await page.getByRole("button", { name: "Make the key" }).click();
  await shown(page, "Dollars above zero");
  assert.strictEqual(await page.getByLabel("Name", { exact: true }).inputValue(), "Ann's key", "what was typed is kept");
  expectComplaint("422");
  await page.getByLabel("Dollars a day").fill("2.50");
  await page.getByRole("button", { name: "Make the key" }).click();
  await shown(page, "Copy it now.");
  const key = await page.locator("#key").textContent();
  if (pictures) await page.screenshot({ path: path.join(pictures, "console-key-made.png"), fullPage: true });
  return key;
}

(async () => {
  const browser = await chromium.launch({
    executablePath,
    args: [
      "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking",
      "--disable-component-update", "--disable-sync",
      // Nothing but this machine is to be called.
      "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
    ],
  });
  try {
    const context = await browser.newContext();
    context.setDefaultTimeout(15_000);
    await context.grantPermissions(["clipboard-read", "clipboard-write"], { origin: base });
    const first = await context.newPage();
    watch(first);
    await signUp(first);
    const key = await firstKey(first);
    await isShownOnce(first, key);
    const page = await context.newPage();
    watch(page);
    const cost = await chats(page);
    await others(page);
    const code = await copiesCode(page);
    await showsErrors(page);
    await isOnTheBalance(page, cost);
    const second = await otherKey(page);
    await revokes(page, key);
    await works(page);
    await allPictures(browser, await context.storageState());
    await page.goto(CONSOLE);
    await page.getByRole("button", { name: "Log out" }).click();
    await page.goto(`${CONSOLE}/keys`);
    assert.strictEqual(page.url(), `${CONSOLE}/login`);
    assert.deepStrictEqual(complaints, [], "the browser has nothing to complain of");
    console.log(JSON.stringify({ cost, code, key: second }));
  } finally {
    await browser.close();
  }
})().catch((error) => {
  console.error(error, complaints);
  process.exit(1);
});
