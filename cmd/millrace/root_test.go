package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"strings"
	"testing"

	"github.com/millrace/millrace/node"
)

// commands are those with a recorded help page.
var commands = []string{
	"", "bench", "bench kern", "doctor", "dpdk", "dpdk release", "help", "forward", "gateway", "gateway check", "gateway convert", "gateway schema", "gateway reload", "gateway status", "gateway top",
	"gateway drain", "gateway undrain", "gateway weight", "gateway connections", "gateway role", "gateway announce", "gateway stop", "man", "replay", "version",
	"filter", "filter load", "filter attach", "filter detach", "filter replace", "filter unload", "filter list", "filter stats",
	"filter expr", "filter match", "filter map", "filter map dump", "filter map update", "filter map delete",
	"stack", "stack up", "stack reload", "stack down", "stack schema", "net", "net addr", "net route", "net neigh", "net sockets", "net stats", "ws", "get",
	"rdma", "rdma serve", "rdma show", "rdma ping", "rdma bw", "rdma lat",
	"collective", "collective plan", "collective bench", "collective doctor",
}

func TestHelpIsAsRecorded(t *testing.T) {
	for _, name := range commands {
		args := append(strings.Fields(name), "--help")
		code, out, err := run(args...)
		if code != exitOK || err != "" {
			t.Errorf("%v: code %d, %q", args, code, err)
		}
		golden(t, "help-"+strings.ReplaceAll(name, " ", "-")+".txt", out)
		if strings.Contains(out, "--json prints") && !strings.Contains(out, "schema") {
			t.Errorf("%v: the documents of --json have a schema version, and the help does not say so", args)
		}
		for line := range strings.Lines(out) {
			if len([]rune(line)) > 101 {
				t.Errorf("%v: a line of %d characters: %s", args, len(line), line)
			}
		}
	}
}

// The words around --help name the command, wherever it stands.
func TestHelpIsOfTheCommandThatIsNamed(t *testing.T) {
	_, want, _ := run("help", "filter", "map", "dump")
	for _, args := range []string{"filter map dump --help", "filter --help map dump", "filter map --help dump", "filter map dump x -h", "--help filter map dump"} {
		if code, out, err := run(strings.Fields(args)...); code != exitOK || out != want {
			t.Errorf("%s: code %d, %.80q %s", args, code, out, err)
		}
	}
}

func TestWithoutACommandTheHelpIsShown(t *testing.T) {
	code, out, _ := run()
	_, help, _ := run("--help")
	if code != exitOK || out != help {
		t.Errorf("code %d, %q", code, out)
	}
}

func TestWrongCommandLinesAreExplainedInOneLine(t *testing.T) {
	for _, tc := range []struct{ args, want string }{
		{"repaly", `unknown command "repaly", did you mean replay?`},
		{"frobnicate", `unknown command "frobnicate" (see`},
		{"frobnicate --help", `unknown command "frobnicate" (see`},
		{"filter chekc --help", `unknown command "chekc", did you mean check?`},
		{"filter --help map dupm", `unknown command "dupm", did you mean dump?`},
		{"gateway stauts -h", `unknown command "stauts", did you mean status?`},
		{"replay", "no capture file; name one or more"},
		{"replay --lopo 3 x", "unknown flag: --lopo, did you mean --loop?"},
		{"replay --frobnicate x", "unknown flag: --frobnicate (see `millrace replay --help`)"},
		{"replay -z x", "unknown shorthand flag: 'z'"},
		{"replay --loop x f", `--loop: "x" is not a whole number`},
		{"replay --classify=x f", `--classify: "x" is not a whole number`},
		{"replay --loop 99999999999999999999 f", `--loop: "99999999999999999999" is out of range`},
		{"replay --verify=perhaps f", `--verify: "perhaps" is neither true nor false`},
		{"replay --verify --to eth1 f", "--write, --capture, --conversations, --classify and --eve out"},
		{"replay --verify --loop 2 f", "--write, --capture, --conversations, --classify and --eve out"},
		{"replay --verify --limit 3 f", "--write, --capture, --conversations, --classify and --eve out"},
		{"replay --verify --rate 2x f", "--write, --capture, --conversations, --classify and --eve out"},
		{"replay --loop 0 f", "--loop 0: say 1 or more"},
		{"replay --engine gpu f", `no engine "gpu"`},
		{"replay --rate fast f", `rate "fast" is none of`},
		{"replay --matches f", "--matches lists the matches of --patterns"},
		{"replay --patterns p --matches --verify f", "leave --verify out"},
		{"forward --engine gpu a b", `no engine "gpu"`},
		{"gateway --engine gpu -c f", `no engine "gpu"`},
		{"bench kern --engine gpu", `no engine "gpu"`},
		{"bench kern --ops frobnicate", `no operation "frobnicate"; there are: null parse`},
		{"bench kern --sizes 65", `no size "65"; there are: 64 256`},
		{"bench kern --packets 31", "31 packets: say 32 to 1048576"},
		{"bench kern --time -1s", "say more than nothing"},
		{"bench kern --cores -1", "-1 cores"},
		{"bench kren", `unknown command "kren", did you mean kern?`},
		{"replay --to x --driver dpdk f", `no driver "dpdk"`},
		{"forward a", "bridges two different interfaces"},
		{"forward a a", "bridges two different interfaces"},
		{"forward --mode quick a b", `no mode "quick"`},
		{"forward --queues -1 a b", "--queues -1"},
		{"forward --queues 2 --capture f a b", "1 with --capture"},
		{"forward --impair-a loss=2 a b", "--impair-a: profile: column"},
		{"gateway", "name one with -c"},
		{"gateway check", "name one with -c"},
		{"gateway relaod", `unknown command "relaod", did you mean reload?`},
		{"gateway drain web", "BACKEND is missing"},
		{"gateway connections --client x", `--client "x": say an address or a prefix`},
		{"gateway connections --limit -1", "--limit -1"},
		{"stack pu", `unknown command "pu", did you mean up?`},
		{"stack up", "no device: name one with --dev, or a configuration file with -c"},
		{"replay --conversations=-1 f", "say 1 or more"},
		{"replay --verify --write out f", "--conversations, --classify and --eve out"},
		{"replay --loop 2 --write out f", "leave --loop out"},
		{"replay --json --write - f", "name a file to write"},
		{"replay --max-gap 1s f", "other rates keep no gaps"},
		{"replay --max-gap -1s --rate 2x f", "say a positive time"},
		{"replay --max-gap 1s --rate 10kpps f", "other rates keep no gaps"},
		{"stack up eth1", `"eth1" is one argument too many (see`},
		{"gateway check g.yaml", `"g.yaml" is one argument too many; a configuration file is named by -c (see`},
		{"stack up --dev eth1:dpdk", `no driver "dpdk"; say auto, afxdp, afpacket or tap`},
		{"stack up --dev eth1 --addr 198.18.0.2", "the prefix length is missing"},
		{"stack up --dev eth1 --addr 198.18.0.255/24", "broadcast address"},
		{"stack up --addr 198.18.0.2/24 --dev a --dev b", "its device is ambiguous"},
		{"stack up --dev eth1 --addr 198.18.0.2/24 --route default", "say NETWORK=GATEWAY"},
		{"stack up --dev eth1 --addr 198.18.0.2/24 --route 198.19.0.1/16=198.18.0.1", "is no network"},
		{"stack up --dev eth1 --addr 198.18.0.2/24 --route default=1.2.3.4 --check", "is in no network of the host"},
		{"stack up --dev eth1 --addr 198.18.0.2/24 --engine gpu", `no engine "gpu"`},
		{"net adr", `unknown command "adr", did you mean addr?`},
		{"net sockets --state x", `--state "x": say listen`},
		{"net sockets -t -u", "tcp udp"},
		{"net addr -4 -6", "ipv4 ipv6"},
		{"net sockets --limit -1", "--limit -1"},
		{"net neigh --state x", `--state "x": say incomplete`},
		{"version x", `unknown command "x"`},
		{"help repaly", `unknown command "repaly", did you mean replay?`},
		{"help gateway statsu", `unknown command "statsu", did you mean status?`},
		{"help replay x", `unknown command "x"`},
		{"help --frobnicate", "unknown flag: --frobnicate"},
		{"-v", "unknown shorthand flag: 'v'"},
		{"--versoin", "unknown flag: --versoin, did you mean --version?"},
		{"gateway -c f x", `unknown command "x"`},
		{"gateway -c -", "name one instead of -"},
		{"completion basj", `unknown command "basj", did you mean bash?`},
		{"completion bash x", `unknown command "x"`},
		{"man x", `unknown command "x"`},
		{"doctor --jsn", "did you mean --json?"},
	} {
		code, out, err := run(strings.Fields(tc.args)...)
		if code != exitUsage || out != "" {
			t.Errorf("%s: code %d, printed %q", tc.args, code, out)
		}
		if !strings.HasPrefix(err, "millrace: ") || !strings.Contains(err, tc.want) || strings.Count(err, "\n") != 1 {
			t.Errorf("%s: %q, want %q", tc.args, err, tc.want)
		}
	}
}

func TestExitCodesDistinguishFailureUsageAndConfiguration(t *testing.T) {
	dir := t.TempDir()
	rules, conf := filepath.Join(dir, "rules"), filepath.Join(dir, "gw.yaml")
	for path, text := range map[string]string{rules: "drop tpc\n", conf: "frobnicate: 1\n"} {
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for _, tc := range []struct {
		args string
		code int
		want string // in the errors
	}{
		{"version", exitOK, ""},
		{"replay /nonexistent/x.pcap", exitFailure, "no such file"},
		{"replay --verify /nonexistent/x.pcap", exitFailure, "no such file"},
		{"replay --to nonexistent0 /nonexistent/x.pcap", exitFailure, "nonexistent0"},
		{"replay --rules /nonexistent/rules x", exitFailure, "rules: open /nonexistent/rules"},
		{"replay --patterns /nonexistent/p x", exitFailure, "patterns: open /nonexistent/p"},
		{"replay --patterns " + rules + " x", exitConfig, rules + ":1:1: a pattern begins with"},
		{"replay --routes " + rules + " x", exitConfig, rules + ":1:1: \"drop\" is not an address"},
		{"replay --rules " + rules + " x", exitConfig, rules + ":1:6: \"tpc\" is not a protocol"},
		{"forward nonexistent0 nonexistent1", exitFailure, "nonexistent0"},
		{"doctor --iface nonexistent0", exitFailure, ""},
		{"gateway -c " + conf, exitConfig, "wrong configuration, nothing was started\n" + conf + ":1:1: "},
		{"gateway check -c " + conf, exitConfig, "millrace: wrong configuration\n" + conf + ":1:1: "},
		{"gateway check --json -c " + conf, exitConfig, ""},
		{"gateway status --socket /nonexistent/gw.sock", exitFailure, "no gateway is running there"},
		{"gateway -c /nonexistent/gw.yaml", exitConfig, "no such file"},
		{"stack up -c " + conf, exitConfig, "wrong configuration, nothing was started\n" + conf + ":1:1: unknown key \"frobnicate\""},
		{"stack up --check -c " + conf, exitConfig, "millrace: wrong configuration\n" + conf + ":1:1: "},
		{"stack up --check --json -c " + conf, exitConfig, ""},
		{"stack up -c /nonexistent/stack.yaml", exitConfig, "no such file"},
		{"stack up --socket= --dev nonexistent0 --addr 198.18.0.2/24", exitFailure, `there is no interface "nonexistent0"`},
		{"stack up --dev eth1", exitUsage, "eth1 has no address"},
		{"stack up --check --dev eth1 --addr 198.18.0.2/24", exitOK, ""},
		{"stack down --socket /nonexistent/x.sock", exitFailure, "no stack is running there"},
		{"net sockets --socket /nonexistent/x.sock", exitFailure, "no stack is running there"},
		{"man --dir /proc/nonexistent", exitFailure, "manual pages"},
	} {
		code, _, err := run(strings.Fields(tc.args)...)
		if code != tc.code || !strings.Contains(err, tc.want) || strings.Contains(err, "Usage:") {
			t.Errorf("%s: code %d %q, want %d %q", tc.args, code, err, tc.code, tc.want)
		}
	}
}

// A new operator looks here for what the program is.
func TestTheHelpNamesWhatTheGatewayDoes(t *testing.T) {
	code, text, _ := run("--help")
	for _, want := range []string{"routes HTTP/1.1", "WebSocket", "gRPC", "QUIC", "route HTTP, balance TCP, UDP and QUIC"} {
		if code != exitOK || !strings.Contains(text, want) {
			t.Errorf("code %d, no %q in:\n%s", code, want, text)
		}
	}
}

func TestVersionTextAndJSONAgree(t *testing.T) {
	code, text, _ := run("version")
	if code != exitOK || !strings.HasPrefix(text, "millrace ") {
		t.Fatalf("code %d: %s", code, text)
	}
	_, out, _ := run("version", "--json")
	var b Build
	decode(t, out, &b)
	for _, want := range []string{b.Version, b.Go, b.Platform, b.Vector, b.GPU, b.WAF} {
		if want == "" || !strings.Contains(text, want) {
			t.Errorf("%q is not in:\n%s", want, text)
		}
	}
}

// A program with a firewall names the engine and the rule set that it was built with, and one without has none.
func TestVersionNamesTheFirewall(t *testing.T) {
	if got, want := firewallOf([]*debug.Module{{Path: "github.com/corazawaf/coraza-coreruleset/v4", Version: "v4.25.0"}, {Path: "github.com/corazawaf/coraza/v3", Version: "v3.8.1"}, {Path: "other"}}), "coraza v3.8.1, crs v4.25.0"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	if b := thisBuild(); (b.WAF == "none") != (firewall == nil) {
		t.Errorf("waf %q, with an engine: %v", b.WAF, firewall != nil)
	}
}

// A missing interface is the most frequent error of a start: it reads alike in every command.
func TestMissingInterfaceReadsAlikeInAllCommands(t *testing.T) {
	dir := t.TempDir()
	conf := filepath.Join(dir, "gw.yaml")
	text := "admin: {socket: \"\"}\ndevices: [{name: nonexistent0}]\nsnat: 198.18.2.1\nservices: [{name: web, address: \"198.18.1.1:80\", backends: [{address: \"198.18.2.11:80\"}]}]\n"
	if err := os.WriteFile(conf, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	want := "millrace: " + node.FindInterface("nonexistent0").Error() + "\n"
	for _, args := range [][]string{
		{"forward", "nonexistent0", "lo"},
		{"replay", "--to", "nonexistent0", sample(t)},
		{"gateway", "-c", conf},
		{"stack", "up", "--socket=", "--dev", "nonexistent0", "--addr", "198.18.0.2/24"},
	} {
		if code, out, err := run(args...); code != exitFailure || !strings.HasSuffix(err, want) {
			t.Errorf("%v: code %d, %q %q, want %q", args, code, out, err, want)
		}
	}
}

func TestVersionFlagPrintsTheVersion(t *testing.T) {
	code, out, err := run("--version")
	if code != exitOK || out != "millrace "+thisBuild().Version+"\n" || err != "" {
		t.Errorf("code %d, %q, %q", code, out, err)
	}
}

func TestHelpOfACommandIsThatOfItsFlag(t *testing.T) {
	for _, name := range commands {
		args := strings.Fields(name)
		code, out, err := run(append([]string{"help"}, args...)...)
		_, want, _ := run(append(args, "--help")...)
		if code != exitOK || out != want || err != "" {
			t.Errorf("help %s: code %d, %q, %q", name, code, out, err)
		}
	}
	if _, out, _ := run("__complete", "help", "gateway", "sta"); !strings.HasPrefix(out, "status\n") {
		t.Errorf("completion offers %q", out)
	}
}

func TestShellsGetTheirCompletion(t *testing.T) {
	for _, shell := range []string{"bash", "zsh", "fish", "powershell"} {
		code, out, _ := run("completion", shell)
		if code != exitOK || len(out) < 1000 {
			t.Errorf("%s: code %d, %d bytes", shell, code, len(out))
		}
	}
}

// backspaces are how nroff prints bold on paper.
var backspaces = regexp.MustCompile(".\x08|\x1b\\[[0-9;]*m")

func TestManualPagesAreWrittenAndRender(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "man1")
	if code, _, err := run("man", "--dir", dir); code != exitOK {
		t.Fatal(err)
	}
	for _, name := range commands {
		if name == "help" {
			continue // --help in another form
		}
		path := filepath.Join(dir, strings.TrimSuffix("millrace-"+strings.ReplaceAll(name, " ", "-"), "-")+".1")
		if _, err := os.Stat(path); err != nil {
			t.Error(err)
		}
	}
	if _, err := exec.LookPath("man"); err != nil {
		t.Skip("man is not installed: pages are not rendered")
	}
	out, err := exec.Command("man", "--warnings", "-l", filepath.Join(dir, "millrace-replay.1")).CombinedOutput()
	text := backspaces.ReplaceAllString(string(out), "")
	for _, want := range []string{"NAME", "millrace-replay", "SYNOPSIS", "OPTIONS", "EXAMPLE"} {
		if err != nil || !strings.Contains(text, want) {
			t.Errorf("%v: no %s in\n%s", err, want, text)
		}
	}
}
