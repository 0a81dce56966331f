// Asks the admin listener. Its token, if it needs one, lives in this tab's session storage only.

import { byId, setText } from "./dom.js";

const KEY = "tidegate-admin-token";
const PATIENCE_MS = 10_000;

const headers = () => {
  const token = sessionStorage.getItem(KEY);
  return token ? { authorization: `Bearer ${token}` } : {};
};

export class Refused extends Error {}

const send = async (path, options) => {
  const answer = await fetch(path, {
    ...options,
    headers: headers(),
    cache: "no-store",
    signal: AbortSignal.timeout(PATIENCE_MS),
  });
  if (answer.status === 401) {
    askForToken();
    throw new Refused("the admin token is missing or wrong");
  }
  return answer;
};

export const get = async (path) => {
  const answer = await send(path, {});
  if (!answer.ok) throw new Error(`${path.split("?")[0]}: status ${answer.status}`);
  return answer.json();
};

// The answer whatever its status is: an error says in its body what is wrong.
export const post = async (path, body) => (await send(path, { method: "POST", body })).json();

let waiting = null;

const form = byId("token-form");

function askForToken() {
  if (waiting) return;
  const wrong = sessionStorage.getItem(KEY) !== null;
  sessionStorage.removeItem(KEY);
  document.body.classList.add("locked");
  form.hidden = false;
  setText(byId("token-fault"), wrong ? "That is not the token of this listener." : "");
  byId("token").focus();
  waiting = {};
  waiting.promise = new Promise((resolve) => {
    waiting.resolve = resolve;
  });
}

form.addEventListener("submit", (event) => {
  event.preventDefault();
  const field = byId("token");
  sessionStorage.setItem(KEY, field.value);
  field.value = "";
  form.hidden = true;
  document.body.classList.remove("locked");
  byId("main").focus();
  waiting?.resolve();
  waiting = null;
});

// Resolves once a token was given, at once if none is being asked for.
export const unlocked = () => waiting?.promise ?? Promise.resolve();
