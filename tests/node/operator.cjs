// An operator's day in a real browser: log in, give money, suspend and resume, resolve a doubt, see the
// tail move. Then a picture of every page. Arguments: the admin address, its token, the customers'
// address, a customer's key, the browser, a directory for pictures or nothing.
const { chromium } = require("playwright-core");
const assert = require("node:assert");
const path = require("node:path");

const [admin, token, base, key, executablePath, pictures] = process.argv.slice(2);
const CONSOLE = `${admin}/operator`;
const WIDTHS = [1280, 375];
const SCHEMES = ["light", "dark"];

// Whatever the browser complains of is a fault: a blocked script, a missing file, an exception.
const complaints = [];

function watch(page) {
  page.on("console", (message) => {
    if (message.type() === "error" || message.type() === "warning") complaints.push(`${page.url()}: ${message.text()}`);
  });
  page.on("pageerror", (error) => complaints.push(`${page.url()}: ${error}`));
  page.on("requestfailed", (request) => {
    // What a page stops itself, such as its tail when it is left, is no fault.
    if (request.failure()?.errorText !== "net::ERR_ABORTED") complaints.push(`${request.url()}: ${request.failure()?.errorText}`);
  });
}

const shown = (page, text) => page.getByText(text).first().waitFor();

async function call(model = "gpt-4o-mini") {
  const answer = await fetch(`${base}/v1/chat/completions`, {
    method: "POST",
    headers: { authorization: `Bearer ${key}`, "content-type": "application/json" },
    body: JSON.stringify({ model, messages: [{ role: "user", content: "hi" }] }),
  });
  await answer.text();
  return answer.status;
}

async function logIn(page) {
  await page.goto(CONSOLE);
  await page.getByLabel("Admin token").fill(token);
  await page.getByRole("button", { name: "Log in" }).click();
  await page.getByRole("heading", { name: "Overview" }).waitFor();
}

async function looksAgain(page) {
  const before = await page.locator("[data-seen]").textContent();
  await page.waitForFunction((before) => document.querySelector("[data-seen]").textContent !== before, before);
  await shown(page, "1 call is in doubt");
}

async function givesMoney(page) {
  await page.getByRole("link", { name: "Customers" }).click();
  await page.getByRole("link", { name: "demo", exact: true }).click();
  await page.getByLabel("Dollars").fill("2.50");
  await page.getByLabel("Note").fill("<b>a gift</b>");
  await page.getByRole("button", { name: "Give", exact: true }).click();
  await shown(page, "The money was given.");
  await shown(page, "$12.50");
}

async function suspendsAndResumes(page) {
  assert.strictEqual(await call(), 200);
  await page.getByText("Suspend…").click();
  await page.getByRole("button", { name: "Suspend" }).click();
  await shown(page, "The account is suspended");
  assert.strictEqual(await call(), 403);
  await page.getByRole("button", { name: "Resume" }).click();
  await shown(page, "The account is taken up again.");
  assert.strictEqual(await call(), 200);
}

async function resolves(page) {
  await page.getByRole("link", { name: "In doubt" }).click();
  await page.getByText("Resolve…").click();
  await page.getByLabel("Note").fill("the provider billed nothing");
  await page.getByRole("button", { name: "Resolve" }).click();
  await shown(page, "The doubt is resolved.");
  await shown(page, "No call is in doubt.");
}

async function looksOn(page) {
  await page.getByRole("link", { name: "Requests" }).click();
  await shown(page, "Live.");
  const rows = () => page.locator("#rows tr").count();
  const before = await rows();
  assert.strictEqual(await call(), 200);
  assert.strictEqual(await call("no-such-model"), 404);
  await page.waitForFunction((count) => document.querySelectorAll("#rows tr").length === count, before + 2);
  await page.getByText("model_not_found").first().waitFor();
  // Paused, rows wait; then they come.
  await page.getByRole("button", { name: "Pause" }).click();
  assert.strictEqual(await call(), 200);
  await page.waitForTimeout(700);
  assert.strictEqual(await rows(), before + 2);
  await page.getByRole("button", { name: "Go on" }).click();
  await page.waitForFunction((count) => document.querySelectorAll("#rows tr").length === count, before + 3);
  // And never more than fit.
  await Promise.all(Array.from({ length: 205 }, () => call()));
  await page.waitForFunction(() => document.querySelectorAll("#rows tr").length === 200);
}

async function pages(page) {
  await page.goto(`${CONSOLE}/customers`);
  const customer = (await page.locator("tbody a").first().getAttribute("href")).split("/").pop();
  await page.goto(`${CONSOLE}/requests?status=200`);
  const request = (await page.locator("td.actions a").first().getAttribute("href")).split("/").pop();
  return {
    overview: "", requests: "/requests", request: `/requests/${request}`, failed: "/requests?errors=yes",
    customers: "/customers", customer: `/customers/${customer}`, keys: `/customers/${customer}/keys`,
    entries: `/customers/${customer}/entries`, usage: `/customers/${customer}/usage`, "customer-prices": `/customers/${customer}/prices`, prices: "/prices", margins: "/margins", tasks: `/customers/${customer}/tasks`,
    "customer-audit": `/customers/${customer}/audit`, codes: "/codes", "in-doubt": "/in-doubt", webhooks: "/webhooks", ledger: "/ledger",
    upstreams: "/upstreams?model=gpt-4o-mini", configuration: "/configuration", files: "/configuration/files", audit: "/audit",
  };
}

async function every(browser, state) {
  for (const colorScheme of SCHEMES) for (const width of WIDTHS) {
    const context = await browser.newContext({ viewport: { width, height: 900 }, colorScheme, storageState: state });
    const page = await context.newPage();
    watch(page);
    for (const [name, at] of Object.entries(await pages(page))) {
      const answer = await page.goto(CONSOLE + at);
      assert.strictEqual(answer.status(), 200, at);
      const over = await page.evaluate(() => document.documentElement.scrollWidth - window.innerWidth);
      assert(over <= 0, `${at} is ${over} pixels too wide at ${width}`);
      if (pictures) await page.screenshot({ path: path.join(pictures, `operator-${name}-${width}-${colorScheme}.png`), fullPage: true });
    }
    await context.close();
  }
}

// Without JavaScript the forms work as well, and the list says how to see more.
async function withoutScripts(browser, state) {
  const context = await browser.newContext({ javaScriptEnabled: false, storageState: state });
  const page = await context.newPage();
  await page.goto(`${CONSOLE}/requests`);
  await page.getByRole("link", { name: "Reload" }).click();
  await page.goto(`${CONSOLE}/codes`);
  await page.getByLabel("Dollars").fill("1.00");
  await page.getByRole("button", { name: "Make" }).click();
  assert.match(await page.locator("#made").textContent(), /^tg-/);
  await context.close();
}

(async () => {
  const browser = await chromium.launch({ executablePath, args: ["--no-sandbox", "--disable-gpu", "--disable-background-networking"] });
  const context = await browser.newContext();
  const page = await context.newPage();
  page.setDefaultTimeout(20000);
  watch(page);
  await logIn(page);
  await looksAgain(page);
  await givesMoney(page);
  await suspendsAndResumes(page);
  await resolves(page);
  await looksOn(page);
  const state = await context.storageState();
  await withoutScripts(browser, state);
  await every(browser, state);
  await page.getByRole("button", { name: "Log out" }).click();
  await page.getByLabel("Admin token").waitFor();
  await browser.close();
  assert.deepStrictEqual(complaints, []);
  console.log("done");
})().catch((error) => { console.error(error, complaints); process.exit(1); });
