/** The document of `/v1/overview`. Fields that a daemon does not send are absent. */

export interface Service {
  name: string;
  ready: boolean;
  ports?: { name: string; address: string }[];
  framework?: { name: string; leader: string | null; leading: boolean; subscribed?: boolean };
  source?: string;
  summary?: Record<string, unknown> | null;
  waiting?: { name: string; instances: number; since: string | null }[];
  deployments?: { id: string; subject: string; step: number; steps: number }[];
}

export interface Amounts {
  total: number;
  used: number;
  offered: number;
}

export interface Problem {
  severity: string;
  source: string;
  message: string;
  advice: string;
}

export interface Overview {
  version: string;
  api: number;
  hostname: string;
  uptime_seconds: number;
  ready: boolean;
  services: Service[];
  cluster: {
    masters: string[];
    reachable: boolean | null;
    error: string | null;
    leader: string | null;
    version: string | null;
    agents: { total: number; active: number; inactive: string[] };
    resources: Record<string, Amounts>;
  };
  store?: {
    kind: string;
    server: string;
    reachable: boolean | null;
    error: string | null;
    milliseconds: number | null;
    durability: string;
    may_lose: string | null;
  };
  plugins?: {
    total: number;
    serving: number;
    refused: number;
    disabled: number;
    quarantined: number;
    shadows: number;
    canaries: number;
  };
  process: {
    resident_bytes: number;
    open_files: number;
    open_files_limit: number | null;
    threads: number;
    cpu_seconds: number;
  } | null;
  problems: Problem[];
}

/** The version of the document that this dashboard reads. */
export const API_VERSION = 1;
