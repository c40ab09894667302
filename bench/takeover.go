package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/millrace/millrace/bench/harness"
	"github.com/millrace/millrace/internal/testkit/testnet"
)

// takeover compares the time that clients wait when one of two machines in front of a service fails.
var takeover = harness.Suite{
	Name:   "takeover",
	Title:  "Take-over of a dead gateway",
	Rounds: 5,
	About: []string{
		"Two machines, a client and a backend on one bridge; one of both machines has the service address. The client sends a " +
			"datagram every millisecond, which is echoed. `gap ms` is the longest time between two datagrams that were answered, " +
			"around the failure: lost are those in between.",
		"millrace is a pair with `sync.role`: datagrams pass the active gateway to the backend. keepalived moves the address of " +
			"the kernel between the machines; the echo runs there. Each is measured with its default times, a lease of 1 s and " +
			"`advert_int 1`, and with short ones, 200 ms and 0.1 s (where three intervals and the skew are 360 ms).",
		"*killed*: SIGKILL of the gateway; of keepalived and the echo. The kernel of that machine keeps keepalived's address. With " +
			"*script* the echo alone is killed, and a script of keepalived looks for it once a second. *gone*: all links of the " +
			"machine are down, at the other end too, so that nothing answers.",
	},
	Open: openTakeover,
}

// Contestants beside ours.
const (
	keepalivedName   = "keepalived"
	keepalivedScript = "keepalived script"
	fastSuffix       = " fast"
)

// failure is what happens to the active machine.
type failure uint8

const (
	killed failure = iota
	gone
)

func openTakeover(e *harness.Env) (*harness.Bench, error) {
	millrace := e.BuildMillrace()
	absent := ""
	if _, err := exec.LookPath("keepalived"); err != nil {
		absent = "keepalived is not installed"
	}
	measure := func(name string, f failure, fast bool) harness.Measure {
		suffix, lease, interval := "", "1s", "1"
		if fast {
			suffix, lease, interval = fastSuffix, "200ms", "0.1"
		}
		m := harness.Measure{
			Name: name, Unit: "take-over", Peer: keepalivedName + suffix,
			Contestants: []harness.Contestant{
				{Name: ours + suffix, Absent: millrace.Absent, Run: func(ctx context.Context, _ harness.Timing) (harness.Sample, error) {
					return runTakeover(ctx, f, func(p *pairSite) error { return p.startMillrace(ctx, millrace.Path, lease) })
				}},
				{Name: keepalivedName + suffix, Absent: absent, Run: func(ctx context.Context, _ harness.Timing) (harness.Sample, error) {
					return runTakeover(ctx, f, func(p *pairSite) error { return p.startKeepalived(ctx, interval, false) })
				}},
			},
			Gates: []harness.Gate{gate(ours+suffix, harness.GapMS, keepalivedName+suffix, "<=", 1)},
		}
		if f == killed && !fast {
			m.Contestants = append(m.Contestants, harness.Contestant{Name: keepalivedScript, Absent: absent, Run: func(ctx context.Context, _ harness.Timing) (harness.Sample, error) {
				return runTakeover(ctx, f, func(p *pairSite) error { return p.startKeepalived(ctx, interval, true) })
			}})
			m.Gates = append(m.Gates, gate(ours, harness.GapMS, keepalivedName, "<=", 0.3), gate(ours, harness.GapMS, keepalivedScript, "<=", 0.3))
		}
		return m
	}
	return &harness.Bench{
		Measures: []harness.Measure{measure("killed", killed, false), measure("killed, short times", killed, true), measure("gone", gone, false), measure("gone, short times", gone, true)},
		Close:    func() error { return nil },
	}, nil
}

// pairSite is the network of a run: client .21, machines .11 and .12 and backend .31 on a bridge, and a link between the machines.
type pairSite struct {
	net             *testnet.Net
	sw, client, end *testnet.Namespace
	machines        [2]*testnet.Namespace
	dir             string
	fail            func() error // kills what runs on the first machine
	stop            []func()
	logs            [2]testnet.Log
	version         string
}

// The service, and the port of the echo.
const (
	pairVIP  = "198.18.0.100"
	pairSNAT = "198.18.0.110"
	pairPort = 7007
)

// runTakeover makes a network, starts a pair in it, fails the first machine, and returns how long the client waits.
func runTakeover(ctx context.Context, f failure, start func(*pairSite) error) (s harness.Sample, err error) {
	began := time.Now()
	p, err := newPairSite()
	if err != nil {
		return s, err
	}
	defer func() { err = errors.Join(err, p.close()) }()
	if err := start(p); err != nil {
		return s, err
	}
	probe, err := p.probe()
	if err != nil {
		return s, err
	}
	defer probe.close()
	if err := probe.awaitAnswers(ctx, 50); err != nil {
		return s, fmt.Errorf("before the failure: %w\n%s\n%s", err, p.logs[0].String(), p.logs[1].String())
	}
	time.Sleep(2 * time.Second) // heartbeats, and the connection is shared
	probe.mark()
	if f == killed {
		err = p.fail()
	} else {
		err = p.unplug()
	}
	if err == nil {
		err = probe.awaitAnswers(ctx, 1000)
	}
	if err != nil {
		return s, fmt.Errorf("after the failure: %w\n%s\n%s", err, p.logs[0].String(), p.logs[1].String())
	}
	gap := probe.gap()
	return harness.Sample{
		Units: 1, Seconds: time.Since(began).Seconds(), Counts: map[string]uint64{harness.GapMS: uint64(max(gap.Round(time.Millisecond).Milliseconds(), 1))},
		Version: p.version,
	}, nil
}

func newPairSite() (p *pairSite, err error) {
	n, err := testnet.New("mr-btake")
	if err != nil {
		return nil, err
	}
	p = &pairSite{net: n, sw: n.Namespace("sw"), client: n.Namespace("client"), end: n.Namespace("end")}
	p.machines = [2]*testnet.Namespace{n.Namespace("m1"), n.Namespace("m2")}
	if p.dir, err = os.MkdirTemp("", "millrace-takeover-"); err == nil {
		err = p.links()
	}
	if err == nil {
		err = p.echo(p.end, fmt.Sprintf("198.18.0.31:%d", pairPort))
	}
	if err != nil {
		return nil, errors.Join(err, p.close())
	}
	return p, nil
}

func (p *pairSite) links() error {
	errs := []error{inNamespace(p.sw, "ip", "link", "add", "br0", "type", "bridge", "mcast_snooping", "0"), inNamespace(p.sw, "ip", "link", "set", "br0", "up")}
	for i, host := range []*testnet.Namespace{p.machines[0], p.machines[1], p.client, p.end} {
		port := fmt.Sprintf("p%d", i)
		errs = append(errs, host.Sysctl("net.ipv6.conf.all.disable_ipv6", "1"), p.net.Link(host, devName, p.sw, port), host.NoOffload(devName),
			inNamespace(p.sw, "ip", "link", "set", port, "master", "br0", "up"), host.Up(devName, fmt.Sprintf("198.18.0.%d/24", []int{11, 12, 21, 31}[i])))
	}
	return errors.Join(append(errs, p.net.Link(p.machines[0], "sync", p.machines[1], "sync"), p.machines[0].Up("sync", "198.18.9.1/24"),
		p.machines[1].Up("sync", "198.18.9.2/24"))...)
}

func inNamespace(ns *testnet.Namespace, name string, args ...string) error {
	_, err := ns.Run(name, args...)
	return err
}

func (p *pairSite) close() error {
	for _, f := range p.stop {
		f()
	}
	return errors.Join(p.net.Close(), os.RemoveAll(p.dir))
}

// unplug takes down the links of the first machine, at their other ends, as a machine without power does.
func (p *pairSite) unplug() error {
	return errors.Join(inNamespace(p.sw, "ip", "link", "set", "p0", "down"), inNamespace(p.machines[1], "ip", "link", "set", "sync", "down"))
}

// start starts a program on a machine. Its log is read until it holds a text.
func (p *pairSite) start(ctx context.Context, i int, text string, argv ...string) (kill func(), err error) {
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Stdout, cmd.Stderr = &p.logs[i], &p.logs[i]
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := p.machines[i].Start(cmd); err != nil {
		return nil, err
	}
	kill = func() {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		_ = cmd.Wait()
	}
	p.stop = append(p.stop, kill)
	for end := time.Now().Add(20 * time.Second); !strings.Contains(p.logs[i].String(), text); time.Sleep(5 * time.Millisecond) {
		if ctx.Err() != nil || time.Now().After(end) {
			return nil, fmt.Errorf("%s does not say %q: %s", argv[0], text, p.logs[i].String())
		}
	}
	return kill, nil
}

// startMillrace starts a pair with a role.
func (p *pairSite) startMillrace(ctx context.Context, path, lease string) error {
	p.version = versionOf(path, "version")
	for i, text := range []string{"role state=active", "role state=standby"} {
		file := filepath.Join(p.dir, fmt.Sprintf("gw%d.yaml", i))
		config := fmt.Sprintf(`devices: [{name: %s}]
snat: %s
admin: {socket: "%s/gw%d.sock"}
sync: {listen: "198.18.9.%d:3780", peer: "198.18.9.%d:3780", key: "%064x", index: %d, role: {lease: %s}}
services: [{name: echo, protocol: udp, address: "%s:%d", backends: [{address: "198.18.0.31:%[11]d"}]}]
`, devName, pairSNAT, p.dir, i, 1+i, 2-i, 7, i, lease, pairVIP, pairPort)
		if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
			return err
		}
		kill, err := p.start(ctx, i, text, path, "gateway", "-c", file)
		if err != nil {
			return err
		}
		if i == 0 {
			p.fail = func() error { kill(); return nil }
		}
	}
	return nil
}

// keepalivedConfig is the file of a machine: interval, priority, script.
const keepalivedConfig = `global_defs { vrrp_version 3
 script_user root
 enable_script_security
}
%s
vrrp_instance pair {
 state BACKUP
 interface ` + devName + `
 virtual_router_id 51
 priority %d
 advert_int %s
 nopreempt
 virtual_ipaddress { ` + pairVIP + `/24 dev ` + devName + ` }
 %s
}
`

// startKeepalived starts keepalived on both machines, and the echo.
func (p *pairSite) startKeepalived(ctx context.Context, interval string, script bool) error {
	p.version = versionOf("keepalived", "--version")
	for i, text := range []string{"Entering MASTER STATE", "Entering BACKUP STATE"} {
		check, track := "", ""
		if script {
			check = fmt.Sprintf("vrrp_script echo { script \"/usr/bin/test -e %s/echo%d\"\n interval 1\n fall 1\n rise 1\n}", p.dir, i)
			track = "track_script { echo }"
		}
		file := filepath.Join(p.dir, fmt.Sprintf("keepalived%d.conf", i))
		alive := filepath.Join(p.dir, fmt.Sprintf("echo%d", i))
		err := errors.Join(os.WriteFile(file, fmt.Appendf(nil, keepalivedConfig, check, 100-i, interval, track), 0o644), os.WriteFile(alive, nil, 0o644))
		if err != nil {
			return err
		}
		err = errors.Join(p.machines[i].Sysctl("net.ipv4.ip_nonlocal_bind", "1"), p.echo(p.machines[i], fmt.Sprintf("%s:%d", pairVIP, pairPort)))
		if err != nil {
			return err
		}
		unserve := p.stop[len(p.stop)-1]
		kill, err := p.start(ctx, i, text, "keepalived", "-n", "-l", "-D", "-P", "-f", file, "-p", filepath.Join(p.dir, fmt.Sprintf("k%d.pid", i)), "-r", filepath.Join(p.dir, fmt.Sprintf("v%d.pid", i)))
		if err != nil {
			return err
		}
		if i == 0 {
			p.fail = func() error {
				unserve()
				if !script {
					kill()
				}
				return os.Remove(alive)
			}
		}
	}
	return nil
}

// versionOf returns the first line that a program says of its version.
func versionOf(argv ...string) string {
	out, _ := exec.Command(argv[0], argv[1:]...).CombinedOutput()
	line, _, _ := bytes.Cut(out, []byte("\n"))
	return string(line)
}
