package main

import (
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/millrace/millrace/gateway/admin"
	"github.com/millrace/millrace/gateway/config"
	"github.com/millrace/millrace/gateway/daemon"
	"github.com/millrace/millrace/internal/testkit/testnet"
	l4control "github.com/millrace/millrace/l4/control"
)

// gatewayConfig has one TCP service with one backend, the server.
const gatewayConfig = `
admin: {socket: %s}
devices:
  - {name: a, driver: %s}
  - {name: b, driver: %s}
snat: 198.18.1.10
services:
  - name: web
    address: 198.18.0.10:80
    backends: [{name: one, address: "198.18.1.2:8080"}]
    health: {interval: 100ms, timeout: 100ms, rise: 1, fall: 1}
`

// buffer is what a process prints.
type buffer struct{ testnet.Log }

// until waits until the buffer has a text.
func (b *buffer) until(t *testing.T, want string) {
	t.Helper()
	for range 200 {
		if strings.Contains(b.String(), want) {
			return
		}
		time.Sleep(50 * time.Millisecond)
	}
	t.Fatalf("%q never comes in:\n%s", want, b)
}

// gatewaySite makes three namespaces in a row, and leaves the gateway in the middle to the caller.
func gatewaySite(t *testing.T, prefix string) (client, middle, server *testnet.Namespace) {
	t.Helper()
	n := testnet.For(t, prefix)
	client, middle, server = n.Namespace("client"), n.Namespace("middle"), n.Namespace("server")
	for _, err := range []error{
		n.Link(client, "eth0", middle, "a"),
		n.Link(server, "eth0", middle, "b"),
		client.Up("eth0", "198.18.0.1/24"),
		server.Up("eth0", "198.18.1.2/24"),
		middle.Up("a", "198.18.0.254/24"),
		middle.Up("b", "198.18.1.254/24"),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	return client, middle, server
}

// serve answers each connection to the server's port 8080 with a word, and closes it.
func serve(t *testing.T, ns *testnet.Namespace) {
	t.Helper()
	var l net.Listener
	err := ns.Do(func() (err error) {
		l, err = net.Listen("tcp", "198.18.1.2:8080")
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = conn.Write([]byte("served"))
			conn.Close()
		}
	}()
}

// ask connects to the service and returns what it answers.
func ask(ns *testnet.Namespace) (answer string, err error) {
	err = ns.Do(func() error {
		conn, err := net.DialTimeout("tcp", "198.18.0.10:80", time.Second)
		if err != nil {
			return err
		}
		defer conn.Close()
		if err := conn.SetDeadline(time.Now().Add(time.Second)); err != nil {
			return err
		}
		buf := make([]byte, 16)
		n, err := conn.Read(buf)
		answer = string(buf[:n])
		return err
	})
	return answer, err
}

func TestGatewayServesReloadsAndEndsWithABalance(t *testing.T) {
	t.Parallel()
	for _, driver := range []string{"afpacket", "afxdp"} {
		t.Run(driver, func(t *testing.T) {
			client, middle, server := gatewaySite(t, "mr-cli-gw-"+driver)
			serve(t, server)
			file := filepath.Join(t.TempDir(), "gw.yaml")
			write := func(text string) {
				t.Helper()
				if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			socket := filepath.Join(t.TempDir(), "gw.sock")
			write(fmt.Sprintf(gatewayConfig, socket, driver, driver))

			var out, log buffer
			cmd := program("gateway", "--json", "-c", file)
			cmd.Stdout, cmd.Stderr = &out, &log
			if err := middle.Start(cmd); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = cmd.Process.Kill() })
			log.until(t, `"msg":"gateway"`)
			served := func() {
				t.Helper()
				awaitAnswer(t, client, &log)
			}
			served()

			write("devices: [oops\n")
			_ = cmd.Process.Signal(syscall.SIGHUP)
			log.until(t, "the old configuration stays")
			log.until(t, file+":")
			served()

			link := func(state string) {
				t.Helper()
				if out, err := server.Run("ip", "link", "set", "eth0", state); err != nil {
					t.Fatal(err, out)
				}
			}
			link("down")
			log.until(t, `"msg":"link","device":"b","state":"no carrier"`)
			link("up")
			log.until(t, `"msg":"link","device":"b","state":"up"`)
			served()

			write(strings.Replace(fmt.Sprintf(gatewayConfig, socket, driver, driver), "name: web", "name: web\n    drain: 3s", 1))
			_ = cmd.Process.Signal(syscall.SIGHUP)
			log.until(t, `"result":"the new configuration is in use","added":0,"removed":0,"changed":1,"first":"~ service web: drain 0s -> 3s"`)
			write(fmt.Sprintf(gatewayConfig, socket, driver, driver))
			_ = cmd.Process.Signal(syscall.SIGHUP)
			log.until(t, "drain 3s -> 0s")
			served()

			controls(t, socket, file, served)
			if driver == "afpacket" {
				addressesBeyond(t, socket, file, served)
			}

			if _, _, err := tell(socket, exitOK, "stop"); err != "" {
				t.Fatal(err)
			}
			if stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", cmd.Process.Pid)); err != nil || !strings.Contains(string(stat), ") Z ") {
				t.Errorf("stop has returned before the process has ended: %s, %v", stat, err)
			}
			if err := cmd.Wait(); err != nil {
				t.Fatalf("%v\n%s", err, &log)
			}
			for line := range strings.Lines(log.String()) {
				if !json.Valid([]byte(line)) {
					t.Errorf("not JSON: %s", line)
				}
			}
			var s daemon.Summary
			if err := json.Unmarshal([]byte(out.String()), &s); err != nil {
				t.Fatalf("%v in %q", err, out.String())
			}
			sum := s.Forwarded + s.Delivered + s.Merged
			for _, n := range s.Dropped {
				sum += n
			}
			if s.Received == 0 || s.Originated == 0 || s.Forwarded == 0 || s.Received+s.Originated != sum {
				t.Errorf("the counters do not balance: %+v", s)
			}
		})
	}
}

// tell runs a command that asks the gateway behind socket; the socket is a file, so this works
// from any network namespace.
func tell(socket string, want int, args ...string) (code int, out, problem string) {
	code, out, stderr := run(append([]string{"gateway"}, append(args, "--socket", socket)...)...)
	if progress := slices.Contains(args, "--wait"); code != want || (code == exitOK) != (stderr == "") && !progress {
		problem = fmt.Sprintf("%v: code %d, want %d\n%s%s", args, code, want, out, stderr)
	}
	return code, out + stderr, problem
}

// controls tries every command on a gateway that serves the service web with the backend one.
func controls(t *testing.T, socket, file string, served func()) {
	t.Helper()
	expect := func(want int, text string, args ...string) string {
		t.Helper()
		_, out, problem := tell(socket, want, args...)
		if problem != "" || !strings.Contains(out, text) {
			t.Errorf("%s%v printed %q, want %q", problem, args, out, text)
		}
		return out
	}
	backend := func() l4control.BackendStatus {
		t.Helper()
		var st admin.Status
		decode(t, expect(exitOK, "web", "status", "--json"), &st)
		if st.Config != file || st.Started.IsZero() || st.Reload.Failed || st.Counts.Received == 0 {
			t.Errorf("status %+v", st)
		}
		return st.Gateway.Services[0].Backends[0]
	}
	var st admin.Status
	decode(t, expect(exitOK, "web", "status", "--json"), &st)
	if e := st.Engine; e.Name != "cpu" || e.Ops != "parse+checksum" || e.Fault != "" || len(e.Backends) != 1 || e.Backends[0].Packets < st.Counts.Received {
		t.Errorf("engine %+v, %d packets received", e, st.Counts.Received)
	}
	expect(exitOK, "engine     cpu (", "status")
	expect(exitOK, "one", "status")
	expect(exitOK, "active", "status", "web")
	expect(exitFailure, `did you mean "web"`, "status", "wbe")
	var one admin.Status
	decode(t, expect(exitOK, "web", "status", "--json", "--service", "web", "--backend", "one", "--limit", "1"), &one)
	if s := one.Gateway.Services; len(s) != 1 || len(s[0].Backends) != 1 || one.Gateway.MoreBackends != 0 {
		t.Errorf("status of one backend: %+v", s)
	}
	expect(exitFailure, `did you mean "one"`, "status", "--backend", "oen")
	expect(exitUsage, "say 1 or more", "status", "--limit", "-1")
	if b := backend(); b.State != config.StateActive || b.Weight != 1 || !b.Healthy || b.Opened == 0 {
		t.Errorf("backend %+v", b)
	}

	expect(exitFailure, "no other takes new IPv4 connections of service \"web\" (--force does it)", "drain", "web", "one")
	expect(exitFailure, "(--force does it)", "weight", "web", "one", "0")
	expect(exitOK, "is drained", "drain", "web", "one", "--force", "--wait", "--deadline", "1s", "--timeout", "20s")
	if b := backend(); b.State != config.StateDraining && b.State != config.StateInactive {
		t.Errorf("drained: %+v", b)
	}
	expect(exitOK, "takes connections", "undrain", "web", "one")
	expect(exitOK, "weight 7", "weight", "web", "one", "7")
	if b := backend(); b.State != config.StateActive || b.Weight != 7 {
		t.Errorf("undrained with weight 7: %+v", b)
	}
	expect(exitOK, "weight config", "weight", "web", "one", "config")
	if b := backend(); b.Weight != 1 {
		t.Errorf("weight of the configuration: %+v", b)
	}
	served()
	expect(exitOK, "connections\n", "connections")
	var c l4control.Connection
	first, rest, _ := strings.Cut(expect(exitOK, "198.18.0.1:", "connections", "--json", "-n", "1", "--service", "web", "--client", "198.18.0.0/24"), "\n")
	if rest != "" {
		t.Errorf("more than the one connection that was asked for: %s", rest)
	}
	decode(t, first, &c)
	if c.Service != "web" || c.Backend != "one" || c.Target.String() != "198.18.1.2:8080" || c.Source == nil || c.Source.Addr().String() != "198.18.1.10" ||
		c.Expires <= 0 || c.Address.String() != "198.18.0.10:80" || c.Protocol != "tcp" {
		t.Errorf("connection %+v", c)
	}
	expect(exitOK, "0 connections", "connections", "--client", "192.0.2.1")

	expect(exitFailure, `did you mean "one"`, "drain", "web", "oen")
	expect(exitFailure, `did you mean "web"`, "undrain", "wbe", "one")
	expect(exitFailure, `did you mean "web"`, "connections", "--service", "wbe")
	expect(exitUsage, "say 0 to 1000", "weight", "web", "one", "1001")
	expect(exitUsage, "WEIGHT is missing", "weight", "web", "one")
	expect(exitUsage, `"x" is one argument too many`, "stop", "x")

	expect(exitOK, "announced", "announce")
	expect(exitFailure, "the gateway has no role", "role")
	expect(exitFailure, "this gateway has no role", "role", "standby")
	expect(exitUsage, `"x" is no role`, "role", "x")
	expect(exitOK, `{"schema":1,"added":0,"removed":0,"changed":0,"changes":[],"more_changes":0}`+"\n", "reload", "--json")
	good, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	reloadsSay(t, socket, file, string(good))
	for text, want := range map[string]int{"devices: [oops\n": exitConfig, string(good) + "snat_ports: 2000-3000\n": exitFailure} {
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		expect(want, "", "reload")
	}
	if err := os.WriteFile(file, good, 0o644); err != nil {
		t.Fatal(err)
	}
	expect(exitOK, "in use", "reload")
	served()
}

// addressesBeyond reloads more service addresses than the filter of AF_PACKET has instructions for. That is refused and changes
// nothing; as many as fit are served.
func addressesBeyond(t *testing.T, socket, file string, served func()) {
	t.Helper()
	good, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	reload := func(n, want int) string {
		t.Helper()
		text := string(good)
		for i := range n {
			text += fmt.Sprintf("  - {name: s%d, address: \"198.18.64.%d:80\", backends: [{address: \"198.18.1.2:8080\"}]}\n", i, i+1)
		}
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		_, out, problem := tell(socket, want, "reload")
		served()
		return out + problem
	}
	count := func() int {
		t.Helper()
		_, out, problem := tell(socket, exitOK, "status", "--json", "--summary")
		var st admin.Status
		decode(t, out, &st)
		if problem != "" || st.Reload.Failed != (st.Reload.Error != "") {
			t.Errorf("%s%+v", problem, st.Reload)
		}
		return len(st.Gateway.Services)
	}
	if out := reload(50, exitOK); count() != 51 {
		t.Errorf("%d services: %s", count(), out)
	}
	if out := reload(250, exitFailure); count() != 51 {
		t.Errorf("%d services after a reload that failed: %s", count(), out)
	}
	if err := os.WriteFile(file, good, 0o644); err != nil {
		t.Fatal(err)
	}
	sometime(t, "the addresses that were refused are released", func() bool {
		_, _, problem := tell(socket, exitOK, "reload")
		return problem == ""
	})
	if served(); count() != 1 {
		t.Errorf("%d services", count())
	}
}

// reloadsSay changes the file of a gateway: a dry run says what a reload would do, which says what it has done.
func reloadsSay(t *testing.T, socket, file, good string) {
	t.Helper()
	say := func(text string, want int, out string, args ...string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		if _, got, problem := tell(socket, want, append([]string{"reload"}, args...)...); problem != "" || got != out {
			t.Errorf("%s%v printed %q, want %q", problem, args, got, out)
		}
	}
	const nothing, weight = "no key would change; the files that the configuration names would be read again\n", "  ~ service web: drain 0s -> 7s\n"
	say(good, exitOK, nothing, "--dry-run")
	changed := strings.Replace(good, "name: web", "name: web\n    drain: 7s", 1)
	say(changed, exitOK, "a reload would change:\n"+weight, "--dry-run")
	say(changed, exitOK, "the new configuration is in use\n"+weight)
	say(changed, exitOK, "the new configuration is in use: no key has changed, and the files that it names were read again\n")
	say(changed+"engine: auto\n", exitFailure, "a reload would change:\n  ~ engine cpu -> auto (needs a restart: a reload refuses it)\nmillrace: a reload would be refused: engine: the change needs a restart\n", "--dry-run")
	say(changed, exitOK, nothing, "--dry-run")
	say(good, exitOK, "the new configuration is in use\n  ~ service web: drain 7s -> 0s\n")
}

func TestCheckReadsStandardInput(t *testing.T) {
	good := fmt.Sprintf(gatewayConfig, `"/run/x.sock"`, "auto", "auto")
	if code, out, err := runWith(good, "gateway", "check", "-c", "-"); code != exitOK || out != "<stdin>: the configuration is valid\n" || err != "" {
		t.Errorf("code %d, %q, %q", code, out, err)
	}
	if code, _, err := runWith(good+"engine: gpu\n", "gateway", "check", "-c", "-"); code != exitConfig || !strings.Contains(err, "<stdin>:12:9: engine cannot be") {
		t.Errorf("code %d, %q", code, err)
	}
	code, out, _ := runWith("", "gateway", "check", "--json", "-c", "-")
	var r checkResult
	decode(t, out, &r)
	if code != exitConfig || r.Valid || len(r.Errors) != 1 || r.Errors[0].File != "<stdin>" {
		t.Errorf("code %d, %+v", code, r)
	}
}

// TestCheckOfManyErrorsIsShort checks a file whose 2000 services are all wrong.
func TestCheckOfManyErrorsIsShort(t *testing.T) {
	const services = 2_000
	var text strings.Builder
	text.WriteString("devices: [{name: gw0}]\nsnat: [198.18.2.1]\nservices:\n")
	for i := range services {
		fmt.Fprintf(&text, "  - {name: s%d, address: \"198.18.%d.%d:80\", mode: nut, backends: [{name: b, address: \"198.19.0.1:80\"}]}\n", i, i>>8, i&255)
	}
	const each = 4 // lines of an error; one that says it is the configuration goes ahead of all
	code, _, short := runWith(text.String(), "gateway", "check", "-c", "-")
	lines := strings.Split(strings.TrimSpace(short), "\n")
	if code != exitConfig || len(lines) != 1+20*each+1 || lines[1+20*each] != "and 1980 more errors (millrace gateway check --all shows all)" {
		t.Errorf("code %d, %d lines, the last is %q", code, len(lines), lines[len(lines)-1])
	}
	code, _, long := runWith(text.String(), "gateway", "check", "--all", "-c", "-")
	if n := strings.Count(long, "\n"); code != exitConfig || n != 1+services*each || !strings.Contains(long, "\n<stdin>:2003:") {
		t.Errorf("--all: code %d, %d lines, %.80q", code, n, long)
	}
	code, out, _ := runWith(text.String(), "gateway", "check", "--json", "-c", "-")
	var r checkResult
	decode(t, out, &r)
	if code != exitConfig || len(r.Errors) != services || r.MoreErrors != 0 {
		t.Errorf("--json: code %d, %d errors and %d more", code, len(r.Errors), r.MoreErrors)
	}
	file := filepath.Join(t.TempDir(), "wrong.yaml")
	if err := os.WriteFile(file, []byte(text.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	if code, _, start := run("gateway", "-c", file); code != exitConfig || strings.Count(start, "\n") != 1+20*each+1 {
		t.Errorf("a start: code %d, %d lines", code, strings.Count(start, "\n"))
	}
}

// TestCheckReportsFilesOfRulesBesideErrorsOfTheConfiguration has an error in each: one run shows all.
func TestCheckReportsFilesOfRulesBesideErrorsOfTheConfiguration(t *testing.T) {
	rules := ruleFile(t, "alert tcp any any -> any any (msg:\"é\"; contnt:\"x\"; sid:1;)\n")
	file := filepath.Join(t.TempDir(), "gw.yaml")
	check := func(more string, args ...string) (int, string) {
		t.Helper()
		text := fmt.Sprintf(gatewayConfig, `"/run/x.sock"`, "auto", "auto") + more + fmt.Sprintf("inspection:\n  policies: [{name: a, rules: [%q]}, {name: b, access: [%q]}]\n", rules, rules+".none")
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		code, out, err := run(append([]string{"gateway", "check", "-c", file}, args...)...)
		return code, out + err
	}
	for more, wrong := range map[string]string{"": "", "engine: gpu\n": "engine cannot be", "sources: {deny: [{file: missing.list}]}\n": "missing.list", "services: 7\n": "services"} {
		for _, args := range [][]string{{}, {"--all"}} {
			code, out := check(more, args...)
			for _, want := range []string{wrong, "r.rules:1:40: \"contnt\" is not a keyword", "r.rules.none: no such"} {
				if code != exitConfig || !strings.Contains(out, want) {
					t.Errorf("%q: code %d, no %q in\n%s", more, code, want, out)
				}
			}
			lines := strings.Split(out, "\n")
			for i, l := range lines {
				if strings.Contains(l, "contnt:") && strings.Index(lines[i+1], "^") != len([]rune(l[:strings.Index(l, "contnt:")])) {
					t.Errorf("the caret of\n%s\n%s", l, lines[i+1])
				}
			}
		}
	}
	_, out := check("engine: gpu\n", "--json")
	var r checkResult
	decode(t, out, &r)
	if len(r.Errors) != 3 {
		t.Errorf("%+v", r)
	}
	if code, out := func() (int, string) { c, o, e := run("gateway", "check", "-c", file+".none"); return c, o + e }(); code != exitConfig || !strings.Contains(out, "no such file") {
		t.Errorf("code %d, %s", code, out)
	}
}

// TestCheckSaysWhatChanges compares files whose first service differs: what is printed is short, however much changes.
func TestCheckSaysWhatChanges(t *testing.T) {
	with := func(name string, first, n int, more string) string {
		var s strings.Builder
		s.WriteString("devices: [{name: gw0}]\nsnat: [198.18.2.1]\n" + more + "services:\n  - name: web\n    address: 198.18.1.1:80\n    backends:\n")
		for i := first; i < first+n; i++ {
			fmt.Fprintf(&s, "      - {name: b%d, address: 198.19.%d.%d:80}\n", i, i>>8, i&255)
		}
		file := filepath.Join(t.TempDir(), name)
		if err := os.WriteFile(file, []byte(s.String()), 0o600); err != nil {
			t.Fatal(err)
		}
		return file
	}
	old, now := with("old", 1, 3, ""), with("now", 2, 3, "engine: cuda\n")
	code, out, err := run("gateway", "check", "-c", now, "--diff", old)
	want := now + ": the configuration is valid\n" +
		"  ~ engine cpu -> cuda (needs a restart: a reload refuses it)\n" +
		"  + backend web/b4 ([198.19.0.4:80])\n" +
		"  - backend web/b1 ([198.19.0.1:80])\n"
	if code != exitOK || out != want || err != "" {
		t.Errorf("code %d, %q, %q", code, out, err)
	}
	if _, out, _ := run("gateway", "check", "-c", old, "--diff", old); !strings.Contains(out, "nothing changes from "+old+"\n") {
		t.Errorf("%q", out)
	}
	_, out, err = run("gateway", "check", "-c", with("many", 10_000, 4_000, ""), "--diff", with("others", 1, 4_000, ""))
	if lines := strings.Split(strings.TrimSpace(out), "\n"); len(lines) != 2+shownChanges || lines[len(lines)-1] != "  ... and 7,980 more" {
		t.Errorf("%d lines, the last is %q; %.500s", len(lines), lines[len(lines)-1], err)
	}
	_, out, _ = run("gateway", "check", "--json", "-c", with("many", 10_000, 4_000, ""), "--diff", with("others", 1, 4_000, ""))
	var r checkResult
	decode(t, out, &r)
	if len(r.Changes) != jsonChanges || r.MoreChanges != 7_000 || r.Changes[0].What != "added" || r.Changes[0].Backend != "b10000" {
		t.Errorf("%d changes and %d more", len(r.Changes), r.MoreChanges)
	}
	if code, _, err := run("gateway", "check", "-c", now, "--diff", "/nonexistent/old.yaml"); code != exitConfig && code != exitFailure || !strings.Contains(err, "/nonexistent/old.yaml") {
		t.Errorf("code %d, %q", code, err)
	}
	if code, _, err := run("gateway", "check", "-c", "-", "--diff", "-"); code != exitUsage || !strings.Contains(err, "name a file for one of them") {
		t.Errorf("code %d, %q", code, err)
	}
}
