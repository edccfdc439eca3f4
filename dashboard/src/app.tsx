/** The frame of every page: navigation, the connection to the daemon, the user, and notifications. */

import { useCallback, useEffect, useMemo, useRef, useState } from "preact/hooks";
import { get } from "./lib/api";
import { displayText } from "./lib/format";
import { useLive } from "./lib/live";
import { API_VERSION, type Overview } from "./lib/overview";
import { follow } from "./lib/sse";
import { type Notice, READ_ONLY, Session, type User } from "./parts/actions";
import { Apps } from "./pages/apps";
import { Cluster } from "./pages/cluster";
import { Discovery } from "./pages/discovery";
import { Events } from "./pages/events";
import { Kubernetes } from "./pages/kubernetes";
import { Home } from "./pages/overview";
import { PluginsPage } from "./pages/plugins";
import { Workflow } from "./pages/workflow";

const PAGES = ["overview", "apps", "discovery", "workflow", "kubernetes", "plugins", "cluster", "events"] as const;
type Page = (typeof PAGES)[number];

/** Parses `#/apps/shop/web`: the page, and the selected object. */
function parseRoute(): { page: Page; rest: string } {
  const [name = "", ...rest] = location.hash.replace(/^#\/?/, "").split("/");
  const page = PAGES.find((known) => known === name) ?? "overview";
  return { page, rest: rest.map(decode).join("/") };
}

function decode(part: string): string {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

/** The overview, which the daemon sends as a stream. */
function useOverview(): { overview: Overview | undefined; lost: boolean } {
  const [overview, setOverview] = useState<Overview>();
  const [disconnected, setDisconnected] = useState(false);
  useEffect(
    () =>
      follow("/v1/overview/stream", {
        event: ({ data }) => {
          try {
            setOverview(JSON.parse(data) as Overview);
          } catch {
            // The document is truncated; the next one replaces it.
          }
        },
        state: (error) => setDisconnected(error !== undefined),
      }),
    [],
  );
  return { overview, lost: disconnected };
}

type Theme = "auto" | "light" | "dark";
const THEMES: Theme[] = ["auto", "light", "dark"];

function useTheme(): [Theme, () => void] {
  const storedTheme = () => THEMES.find((theme) => theme === localStorage.getItem("theme")) ?? "auto";
  const [theme, setTheme] = useState<Theme>(storedTheme);
  useEffect(() => {
    document.documentElement.dataset.theme = theme;
    localStorage.setItem("theme", theme);
  }, [theme]);
  const next = () => setTheme(THEMES[(THEMES.indexOf(theme) + 1) % THEMES.length] ?? "auto");
  return [theme, next];
}

export function App() {
  const [{ page, rest }, setRoute] = useState(parseRoute);
  const { overview, lost: disconnected } = useOverview();
  const user = useLive("user", (signal) => get<User>("/v1/user", signal), 60_000);
  const [notices, setNotices] = useState<Notice[]>([]);
  const [theme, nextTheme] = useTheme();
  const main = useRef<HTMLElement>(null);

  useEffect(() => {
    const onHashChange = () => setRoute(parseRoute());
    addEventListener("hashchange", onHashChange);
    return () => removeEventListener("hashchange", onHashChange);
  }, []);
  useEffect(() => {
    document.title = `${title(page)} · Transom`;
  }, [page]);

  const dismiss = useCallback((id: number) => setNotices((old) => old.filter((notice) => notice.id !== id)), []);
  const notify = useCallback((text: string, failed = false) => {
    const id = Date.now() + Math.random();
    setNotices((old) => [...old.slice(-3), { id, text, failed }]);
    if (!failed) setTimeout(() => dismiss(id), 8000);
  }, [dismiss]);
  const session = useMemo(() => ({ user: user.value, notify }), [user.value, notify]);

  const hasOtherApi = overview && overview.api !== API_VERSION;
  return (
    <Session.Provider value={session}>
      <a class="skip" href="#main" onClick={(event) => { event.preventDefault(); main.current?.focus(); }}>
        Skip to content
      </a>
      <nav aria-label="Pages">
        <a class="brand" href="#/overview">
          <img src="./icon.svg" alt="" width="26" height="26" /> Transom
        </a>
        {PAGES.map((name) => (
          <a key={name} href={`#/${name}`} aria-current={name === page ? "page" : undefined}>
            {title(name)}
            {name === "overview" && overview && overview.problems.length > 0 && (
              <span class="count" aria-label={`${overview.problems.length} problems`}>
                {overview.problems.length}
              </span>
            )}
          </a>
        ))}
        <div class="foot">
          {user.value?.user && <span title={user.value.read_only ? READ_ONLY : ""}>{displayText(user.value.user, 40)}</span>}
          {user.value?.read_only && <span class="badge dull">read-only</span>}
          <button type="button" class="plain" onClick={nextTheme} aria-label={`Colours: ${theme}`}>
            {theme === "auto" ? "◐ auto" : theme === "light" ? "☀ light" : "☾ dark"}
          </button>
          {overview && <small>{displayText(overview.version, 40)}</small>}
        </div>
      </nav>
      <main id="main" ref={main} tabIndex={-1}>
        <div class="banners" aria-live="assertive">
          {disconnected && <p class="banner bad">The daemon is not reachable. Retrying; what is shown may be old.</p>}
          {hasOtherApi && (
            <p class="banner warn">
              The daemon was replaced by one with another API ({overview.api}, this page reads {API_VERSION}).{" "}
              <button type="button" onClick={() => location.reload()}>
                Reload the page
              </button>
            </p>
          )}
        </div>
        <h1>{title(page)}</h1>
        {page === "overview" && <Home overview={overview} />}
        {page === "apps" && <Apps selected={rest ? `/${rest}` : ""} />}
        {page === "discovery" && <Discovery overview={overview} />}
        {page === "workflow" && <Workflow selected={rest} />}
        {page === "kubernetes" && <Kubernetes overview={overview} />}
        {page === "plugins" && <PluginsPage selected={rest} />}
        {page === "cluster" && <Cluster />}
        {page === "events" && <Events />}
      </main>
      <div class="notices" role="status">
        {notices.map(({ id, text, failed }) => (
          <div key={id} class={failed ? "notice failed" : "notice"}>
            <span>{text}</span>
            <button type="button" class="plain" aria-label="Dismiss" onClick={() => dismiss(id)}>
              ✕
            </button>
          </div>
        ))}
      </div>
    </Session.Provider>
  );
}

function title(page: Page): string {
  return page.charAt(0).toUpperCase() + page.slice(1);
}
