// The playground: calls the gateway's public endpoints with a key for an hour. Whatever comes back is
// put into the page as text, or as the source of a picture, a film or a sound; never as HTML.
"use strict";

(() => {
  const root = document.getElementById("playground");
  if (!root) return;
  const setup = JSON.parse(root.dataset.setup);
  const at = (id) => document.getElementById(id);
  const form = root.querySelector("form");
  const LABELS = { chat: "Chat", image: "Image", video: "Video", speech: "Speech" };
  // The sizes of family V up to version 2.6, by what they are billed as.
  const SIZES = { "480p": "832*480", "720p": "1280*720", "1080p": "1920*1080" };
  const STORED = "tollgate-playground";
  // A key is not used in its last minute: a call must not outlive it.
  const SPARE_MS = 60_000;
  const POLL_MS = 2_000;
  const POLLS_MAX = 600;
  const COST_POLLS_MAX = 20;
  const UNKNOWN_POLLS_MAX = 5;
  let kind = setup.models[0].kind;
  let language = "curl";
  let messages = [];
  // What was sent last, which is what is shown as code until something is typed.
  let sent = null;
  let stopper = null;

  const element = (name, text, className) => {
    const made = document.createElement(name);
    if (text !== undefined) made.textContent = text;
    if (className) made.className = className;
    return made;
  };
  const models = () => setup.models.find((one) => one.kind === kind).models;
  const model = () => models()[at("model").selectedIndex] || models()[0];
  const wait = (ms) => new Promise((done) => { setTimeout(done, ms); });
  const say = (text) => { at("said").textContent = text; };

  // What is sent, by kind and by how the model is asked.
  const BODIES = {
    "chat chat": (to, said) => ({ model: to.id, messages: said, stream: true }),
    "chat messages": (to, said) => ({ model: to.id, max_tokens: 1024, messages: said, stream: true }),
    "image input": (to, said, chosen) => ({
      model: to.id,
      input: { messages: [{ role: "user", content: [{ text: chosen.prompt }] }] },
      ...(chosen.size ? { parameters: { size: chosen.size } } : {}),
    }),
    "image prompt": (to, said, chosen) => ({
      model: to.id, prompt: chosen.prompt, ...(chosen.size ? { size: chosen.size } : {}),
    }),
    "video prompt": (to, said, chosen) => ({
      model: to.id, prompt: chosen.prompt, duration: chosen.seconds, resolution: chosen.resolution,
    }),
    "video content": (to, said, chosen) => ({
      model: to.id, content: [{ type: "text", text: chosen.prompt }],
      duration: chosen.seconds, resolution: chosen.resolution,
    }),
    "video input-size": (to, said, chosen) => ({
      model: to.id, duration: chosen.seconds, resolution: chosen.resolution,
      input: { prompt: chosen.prompt },
      parameters: { size: SIZES[chosen.resolution], duration: chosen.seconds },
    }),
    "video input-resolution": (to, said, chosen) => ({
      model: to.id, duration: chosen.seconds, resolution: chosen.resolution,
      input: { prompt: chosen.prompt },
      parameters: { resolution: chosen.resolution.toUpperCase(), duration: chosen.seconds },
    }),
    "speech speech": (to, said, chosen) => ({
      model: to.id, input: chosen.prompt, voice: "alloy",
      ...(chosen.format ? { response_format: chosen.format } : {}),
    }),
  };

  function body() {
    const to = model();
    const chosen = {
      prompt: at("prompt").value,
      size: at("size").value,
      resolution: at("resolution").value,
      seconds: Number(at("seconds").value),
      format: at("format").value,
    };
    const said = [...messages, { role: "user", content: chosen.prompt }];
    return BODIES[`${kind} ${to.as}`](to, said, chosen);
  }

  // The key: kept as long as the tab, never shown.
  async function key(fresh) {
    const kept = JSON.parse(sessionStorage.getItem(STORED) || "null");
    const lasts = kept && kept.account === setup.account && kept.until - SPARE_MS > Date.now();
    if (lasts && !fresh) return kept.key;
    const answer = await fetch(setup.key, {
      method: "POST", headers: { "x-csrf-token": setup.csrf }, redirect: "manual",
    });
    if (!answer.ok) throw new Error(await why(answer));
    const made = await answer.json();
    sessionStorage.setItem(STORED, JSON.stringify({ ...made, account: setup.account }));
    return made.key;
  }

  // What an answer that is no success says.
  async function why(answer) {
    if (answer.type === "opaqueredirect") return "You are logged out. Reload this page.";
    const text = await answer.text();
    try {
      const said = JSON.parse(text);
      const message = said.error?.message || said.message;
      if (message) return `${answer.status}: ${message}`;
    } catch { /* It is no JSON; the text says it. */ }
    return `${answer.status}: ${text.slice(0, 500)}`;
  }

  async function call(path, init) {
    for (const fresh of [false, true]) {
      const headers = { "content-type": "application/json", authorization: `Bearer ${await key(fresh)}` };
      const answer = await fetch(path, { ...init, headers, signal: stopper?.signal });
      // Another tab has got a key since, and this one's was switched off.
      const refused = answer.status === 401 || answer.status === 403;
      if (refused && !fresh) continue;
      if (!answer.ok) throw Object.assign(new Error(await why(answer)), { call: answer });
      return answer;
    }
    throw new Error("The key of this page is refused.");
  }

  async function* events(answer) {
    const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
    let rest = "";
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      const blocks = (rest + value).split(/\r?\n\r?\n/);
      rest = blocks.pop();
      for (const block of blocks) {
        const lines = block.split(/\r?\n/).filter((line) => line.startsWith("data:"));
        const data = lines.map((line) => line.slice(5).trim()).join("\n");
        if (data && data !== "[DONE]") yield JSON.parse(data);
      }
    }
  }

  // A place for one call: what was asked, what came, what it cost.
  function result(prompt) {
    const card = element("article", undefined, "card result");
    card.append(element("h3", `${LABELS[kind]} with ${model().id}`));
    card.append(element("p", prompt, "soft out"));
    const out = element("div", "", "out");
    const cost = element("p", "", "soft cost");
    card.append(out, cost);
    at("results").prepend(card);
    return { out, cost, card };
  }

  // What the call was billed, as soon as that is settled.
  async function showCost(answer, place) {
    const request = answer?.headers.get("x-request-id");
    if (!request) return;
    for (let asked = 0; asked < COST_POLLS_MAX; asked += 1) {
      const told = await fetch(`${setup.cost}?request=${encodeURIComponent(request)}`, { redirect: "manual" });
      // Another node of a fleet may have made the call, and reports it within a second.
      if (told.status === 404 && asked < UNKNOWN_POLLS_MAX) {
        await wait(300);
        continue;
      }
      if (!told.ok) return;
      const { charged, held, settled } = await told.json();
      place.cost.textContent = settled ? `Cost: $${charged}` : `Set aside for it: $${held}`;
      if (settled) return;
      await wait(300);
    }
  }

  async function chat(place) {
    const to = model();
    const asked = body();
    const answer = await call(to.path, { method: "POST", body: JSON.stringify(asked) });
    let text = "";
    try {
      for await (const event of events(answer)) {
        if (event.error) throw new Error(event.error.message || "The answer broke off.");
        const piece = to.as === "messages" ? event.delta?.text : event.choices?.[0]?.delta?.content;
        if (piece) place.out.textContent = (text += piece);
      }
    } finally {
      // What was said so far belongs to the conversation, also where it was stopped.
      if (text) messages = [...asked.messages, { role: "assistant", content: text }];
      at("prompt").value = "";
    }
    return answer;
  }

  function picture(source, prompt) {
    const image = element("img");
    image.src = source;
    image.alt = prompt;
    return image;
  }

  const isUrl = (text) => typeof text === "string" && /^https?:\/\//.test(text);

  async function image(place, prompt) {
    const answer = await call(model().path, { method: "POST", body: JSON.stringify(body()) });
    const made = await answer.json();
    const choices = made.output?.choices || [];
    const urls = choices.flatMap((choice) => choice.message?.content || []).map((part) => part.image);
    const found = [...(made.data || []).map((one) => one.url), ...urls].filter(isUrl);
    const inline = (made.data || []).map((one) => one.b64_json).filter(Boolean);
    place.out.className = "media";
    for (const url of found) place.out.append(picture(url, prompt));
    for (const bytes of inline) place.out.append(picture(`data:image/png;base64,${bytes}`, prompt));
    if (!place.out.childElementCount) place.out.textContent = "The answer has no picture.";
    return answer;
  }

  async function speech(place) {
    const answer = await call(model().path, { method: "POST", body: JSON.stringify(body()) });
    const sound = element("audio");
    sound.controls = true;
    sound.src = URL.createObjectURL(await answer.blob());
    place.out.append(sound);
    return answer;
  }

  async function video(place) {
    const { path } = model();
    const answer = await call(path, { method: "POST", body: JSON.stringify(body()) });
    let task = await answer.json();
    const steps = element("ol", undefined, "steps");
    place.out.append(steps);
    showCost(answer, place);
    let state = "";
    for (let asked = 0; asked < POLLS_MAX; asked += 1) {
      const now = task.status || "processing";
      if (now !== state) {
        state = now;
        steps.append(element("li", `${state}, ${new Date().toLocaleTimeString("en-GB")}`));
      }
      if (["succeeded", "failed", "expired", "cancelled"].includes(state)) break;
      await wait(POLL_MS);
      task = await (await call(`${path}/${encodeURIComponent(task.id)}`, { method: "GET" })).json();
    }
    if (state === "succeeded") {
      const content = Array.isArray(task.content) ? task.content[0] : task.content;
      const url = content?.video_url?.url || content?.video_url;
      if (isUrl(url)) {
        const film = element("video");
        film.controls = true;
        film.src = url;
        place.out.append(film);
      }
    } else if (task.error) {
      place.out.append(element("p", task.error.message || task.error.code, "wrong"));
    }
    return answer;
  }

  const MAKE = { chat, image, video, speech };

  form.addEventListener("submit", async (submitted) => {
    submitted.preventDefault();
    if (stopper) return;
    const prompt = at("prompt").value;
    sent = body();
    stopper = new AbortController();
    at("send").disabled = true;
    at("stop").hidden = false;
    say("Working.");
    const place = result(prompt);
    let answer;
    try {
      answer = await MAKE[kind](place, prompt);
      say("Done.");
    } catch (error) {
      answer = error.call;
      const stopped = error.name === "AbortError";
      say(stopped ? "Stopped." : "This did not work.");
      place.card.append(element("p", stopped ? "Stopped." : error.message, "wrong"));
    } finally {
      stopper = null;
      at("send").disabled = false;
      at("stop").hidden = true;
      showCode();
    }
    await showCost(answer, place);
  });
  at("stop").addEventListener("click", () => stopper?.abort());
  at("clear").addEventListener("click", () => {
    messages = [];
    sent = null;
    at("results").replaceChildren();
    say("A new conversation.");
    showCode();
  });

  // The same call as code.
  const quoted = (text) => `'${text.replaceAll("'", "'\\''")}'`;
  const indented = (text, by) => text.split("\n").join(`\n${by}`);

  function python(value, by = "") {
    const deeper = `${by}    `;
    if (value === true) return "True";
    if (value === false) return "False";
    if (value === null || typeof value !== "object") return JSON.stringify(value);
    const isList = Array.isArray(value);
    const members = isList
      ? value.map((one) => deeper + python(one, deeper))
      : Object.entries(value).map(([name, one]) => `${deeper}${JSON.stringify(name)}: ${python(one, deeper)}`);
    return `${isList ? "[" : "{"}\n${members.join(",\n")},\n${by}${isList ? "]" : "}"}`;
  }

  // Where the text of an answer is, in Python and in JavaScript alike.
  const TEXTS = { chat: '["choices"][0]["message"]["content"]', messages: '["content"][0]["text"]' };
  const FILES = { speech: (asked) => `speech.${asked.response_format || "mp3"}` };

  const CODE = {
    curl(url, asked) {
      const file = FILES[kind] ? ` \\\n  -o ${FILES[kind](asked)}` : "";
      return `curl ${asked.stream ? "-N " : ""}${url} \\\n  -H "Authorization: Bearer $TOLLGATE_KEY" \\\n`
        + `  -H 'Content-Type: application/json' \\\n  -d ${quoted(JSON.stringify(asked, null, 2))}${file}`;
    },
    python(url, asked) {
      const { stream, ...whole } = asked;
      const after = {
        speech: `open("${FILES.speech(asked)}", "wb").write(answer.content)`,
        video: `task = answer.json()\nwhile task["status"] not in ("succeeded", "failed", "expired", "cancelled"):\n`
          + `    time.sleep(2)\n    task = requests.get(f"${url}/{task['id']}", headers=headers).json()\nprint(task)`,
      }[kind] || `print(answer.json()${TEXTS[model().as] || ""})`;
      return `# pip install requests\nimport os${kind === "video" ? "\nimport time" : ""}\nimport requests\n\n`
        + `headers = {"Authorization": f"Bearer {os.environ['TOLLGATE_KEY']}"}\n`
        + `answer = requests.post(\n    "${url}",\n    headers=headers,\n    json=${python(whole, "    ")},\n)\n`
        + `answer.raise_for_status()\n${after}`;
    },
    javascript(url, asked) {
      const { stream, ...whole } = asked;
      const after = {
        speech: `await writeFile("${FILES.speech(asked)}", Buffer.from(await answer.arrayBuffer()));`,
        video: `let task = await answer.json();\n`
          + `while (!["succeeded", "failed", "expired", "cancelled"].includes(task.status)) {\n`
          + `  await new Promise((done) => setTimeout(done, 2000));\n`
          + `  task = await (await fetch(\`${url}/\${task.id}\`, { headers })).json();\n}\nconsole.log(task);`,
      }[kind] || `console.log((await answer.json())${TEXTS[model().as] || ""});`;
      const first = kind === "speech" ? `import { writeFile } from "node:fs/promises";\n\n` : "";
      return `// Node 18 or newer, as a module (.mjs)\n${first}const headers = {\n`
        + `  authorization: \`Bearer \${process.env.TOLLGATE_KEY}\`,\n  "content-type": "application/json",\n};\n`
        + `const answer = await fetch("${url}", {\n  method: "POST",\n  headers,\n`
        + `  body: JSON.stringify(${indented(JSON.stringify(whole, null, 2), "  ")}),\n});\n`
        + `if (!answer.ok) throw new Error(await answer.text());\n${after}`;
    },
  };

  function showCode() {
    const asked = at("prompt").value || !sent ? body() : sent;
    at("code").firstElementChild.textContent = CODE[language](setup.url + model().path, asked);
    for (const button of root.querySelectorAll("[data-language]")) {
      button.setAttribute("aria-pressed", String(button.dataset.language === language));
    }
  }

  function fill(select, options) {
    select.replaceChildren(...options.map(([value, text]) => {
      const option = element("option", text);
      option.value = value;
      return option;
    }));
  }

  // What can be chosen for the model that is chosen.
  function showModel() {
    const { sizes = [], resolutions = [], seconds = [1, 60], formats = [] } = model();
    const own = ["", "the model's own"];
    fill(at("size"), [own, ...sizes.map((size) => [size, size.replace("*", "x")])]);
    const known = resolutions.length ? resolutions : ["480p", "720p", "1080p"];
    fill(at("resolution"), known.map((word) => [word, word]));
    fill(at("format"), formats.length ? formats.map((word) => [word, word]) : [own, ["mp3", "mp3"], ["wav", "wav"]]);
    at("seconds").min = seconds[0] || 1;
    at("seconds").max = seconds[1] || 60;
    at("seconds").value = Math.min(Math.max(5, at("seconds").min), at("seconds").max);
    at("prompt").maxLength = model().characters || 20_000;
    sent = null;
    showCode();
  }

  function showKind() {
    fill(at("model"), models().map((one) => [one.id, one.id]));
    for (const part of root.querySelectorAll("[data-for]")) part.hidden = part.dataset.for !== kind;
    for (const button of at("kinds").children) {
      button.setAttribute("aria-pressed", String(button.dataset.kind === kind));
    }
    showModel();
  }

  for (const one of setup.models) {
    const button = element("button", LABELS[one.kind], "plain");
    button.type = "button";
    button.dataset.kind = one.kind;
    button.addEventListener("click", () => { kind = one.kind; showKind(); });
    at("kinds").append(button);
  }
  for (const button of root.querySelectorAll("[data-language]")) {
    button.addEventListener("click", () => { language = button.dataset.language; showCode(); });
  }
  at("model").addEventListener("change", showModel);
  form.addEventListener("input", (changed) => { if (changed.target.id !== "model") showCode(); });
  root.hidden = false;
  showKind();
})();
