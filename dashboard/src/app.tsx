/** The frame of every page: navigation, the connection to the daemon, the user, and notifications. */

import { useCallback, useEffect, useMemo, useRef, useState } from "preact/hooks";
import { get } from "./lib/api";
import { displayText, localTime } from "./lib/format";
import { useLive } from "./lib/live";
import { API_VERSION, type Overview } from "./lib/overview";
import { useRoute } from "./lib/route";
import { follow } from "./lib/sse";
import { type Notice, READ_ONLY, Session, type User } from "./parts/actions";
import { DeploymentPage } from "./parts/deployments";
import { Find } from "./parts/find";
import { AgentPage } from "./pages/agent";
import { AppPage } from "./pages/app";
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

/** Pages about one object, and the page of the navigation that lists such objects. */
const LISTED: Partial<Record<string, Page>> = { agents: "cluster", deployments: "apps" };

interface Connection {
  overview: Overview | undefined;
  /** Why there is no connection: the status of the last answer, 0 if there was none. */
  lost: number | undefined;
  /** The daemon that the page belongs to, as it was first seen. */
  first: Overview | undefined;
}

/** The overview, which the daemon sends as a stream. */
function useOverview(): Connection {
  const [overview, setOverview] = useState<Overview>();
  const [lost, setLost] = useState<number>();
  const first = useRef<Overview>();
  useEffect(
    () =>
      follow("/v1/overview/stream", {
        event: ({ data }) => {
          try {
            const document = JSON.parse(data) as Overview;
            first.current ??= document;
            setOverview(document);
          } catch {
            // The document is truncated; the next one replaces it.
          }
        },
        state: (error, status) => setLost(error === undefined ? undefined : (status ?? 0)),
      }),
    [],
  );
  return { overview, lost, first: first.current };
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
  const { page: name, rest } = useRoute();
  const page = LISTED[name] ?? PAGES.find((known) => known === name) ?? "overview";
  const connection = useOverview();
  const { overview } = connection;
  const [finding, setFinding] = useState(false);
  const user = useLive("user", (signal) => get<User>("/v1/user", signal), 60_000);
  const [notices, setNotices] = useState<Notice[]>([]);
  const [theme, nextTheme] = useTheme();
  const main = useRef<HTMLElement>(null);

  useEffect(() => {
    const onKey = (event: KeyboardEvent) => {
      if (!(event.ctrlKey || event.metaKey) || event.key.toLowerCase() !== "k") return;
      event.preventDefault();
      setFinding(true);
    };
    addEventListener("keydown", onKey);
    return () => removeEventListener("keydown", onKey);
  }, []);
  const heading = rest && (name === "apps" || name === "agents" || name === "deployments") ? `${title(name).slice(0, -1)}` : title(page);
  useEffect(() => {
    document.title = `${rest ? `${displayText(rest, 80)} · ` : ""}${title(page)} · Transom`;
  }, [page, rest]);

  const dismiss = useCallback((id: number) => setNotices((old) => old.filter((notice) => notice.id !== id)), []);
  const notify = useCallback((text: string, failed = false) => {
    const id = Date.now() + Math.random();
    setNotices((old) => [...old.slice(-3), { id, text, failed }]);
    if (!failed) setTimeout(() => dismiss(id), 8000);
  }, [dismiss]);
  const session = useMemo(() => ({ user: user.value, notify }), [user.value, notify]);

  return (
    <Session.Provider value={session}>
      <a class="skip" href="#main" onClick={(event) => { event.preventDefault(); main.current?.focus(); }}>
        Skip to content
      </a>
      <nav aria-label="Pages">
        <a class="brand" href="#/overview">
          <img src="./icon.svg" alt="" width="26" height="26" /> Transom
        </a>
        <button type="button" class="search" onClick={() => setFinding(true)}>
          Find <kbd>Ctrl K</kbd>
        </button>
        {PAGES.map((one) => (
          <a key={one} href={`#/${one}`} aria-current={one === page ? "page" : undefined}>
            {title(one)}
            {one === "overview" && overview && overview.problems.length > 0 && (
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
          <Banners {...connection} />
        </div>
        <h1>{heading}</h1>
        {page === "overview" && <Home overview={overview} />}
        {name === "apps" && (rest ? <AppPage key={rest} id={`/${rest}`} overview={overview} /> : <Apps />)}
        {name === "deployments" && <DeploymentPage id={rest} />}
        {page === "discovery" && <Discovery overview={overview} />}
        {page === "workflow" && <Workflow selected={rest} />}
        {page === "kubernetes" && <Kubernetes overview={overview} />}
        {page === "plugins" && <PluginsPage selected={rest} />}
        {name === "cluster" && <Cluster />}
        {name === "agents" && <AgentPage key={rest} id={rest} overview={overview} />}
        {page === "events" && <Events />}
        {finding && <Find overview={overview} close={() => setFinding(false)} />}
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

/** What the user must know about the connection and the daemon behind it. */
function Banners({ overview, lost, first }: Connection) {
  const [seen, setSeen] = useState("");
  const reload = (
    <button type="button" onClick={() => location.reload()}>
      Reload the page
    </button>
  );
  const restarted = overview?.started && first?.started && overview.started !== first.started && overview.started !== seen;
  const upgraded = overview && first && overview.version !== first.version;
  return (
    <>
      {lost !== undefined && <p class="banner bad">{lostText(lost)}</p>}
      {overview && overview.api !== API_VERSION ? (
        <p class="banner warn">
          The daemon was replaced by one with another API ({overview.api}, this page reads {API_VERSION}). {reload}
        </p>
      ) : upgraded ? (
        <p class="banner warn">
          The daemon was replaced: version {displayText(overview.version, 40)} instead of {displayText(first.version, 40)}. {reload}
        </p>
      ) : (
        restarted && (
          <p class="banner warn">
            The daemon was restarted at {localTime(overview.started)}. Its history and its buffer of events began again.{" "}
            <button type="button" onClick={() => setSeen(overview.started ?? "")}>
              Dismiss
            </button>
          </p>
        )
      )}
    </>
  );
}

function lostText(status: number): string {
  if (status === 401) return "The daemon rejects the user or the password (401): the password was changed, or it is wrong. Reload the page to enter it.";
  if (status === 403) return "The daemon does not permit this browser to read (403): it limits networks, host names or users.";
  if (status === 429) return "The daemon rejects requests after too many wrong passwords (429). Retrying.";
  if (status >= 300) return `The daemon answers with status ${status}. Retrying; what is shown may be old.`;
  return "The daemon is not reachable. Retrying; what is shown may be old.";
}

function title(page: string): string {
  return page.charAt(0).toUpperCase() + page.slice(1);
}
