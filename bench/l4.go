package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/millrace/millrace/bench/harness"
	"github.com/millrace/millrace/bench/role"
	"github.com/millrace/millrace/gateway/config"
)

// l4 compares the gateway with the kernel's NAT, nginx and testpmd on the way of a packet from a
// client through a gateway to a backend.
var l4 = harness.Suite{
	Name:   "l4",
	Title:  "The L4 gateway",
	Rounds: 3,
	About: []string{
		"Three network namespaces, client -- gateway -- backend, joined by veth pairs and made anew for every run. " +
			"The client's side runs on CPU 0, the gateway on CPU 1. What the gateway is differs, the rest does not. " +
			"README.md says what each measure is, with the rules of nft, and what to beware of.",
		"nft DNAT is one rule, and conntrack. Without an own figure the kernel forwards on the back of whoever sends, " +
			"all on CPU 0; threaded is the same in a kernel thread on CPU 1, as a core that serves a NIC would. " +
			"own is the CPU time of the gateway's process or thread; soft interrupts on its back, such as the backend's sink, are in it.",
		"UDP is 64-byte datagrams in one direction, counted by a program behind the backend's driver. TCP is iperf3, its server on CPU 1; " +
			"veth as it comes hands segments of 64 KiB from socket to socket, which no wire does; wire-sized is what a NIC would deliver. " +
			"flat is the cost of a packet with little and with much of something. loops and flat in memory have no network at all.",
	},
	Open: openL4((*l4Bench).udp, (*l4Bench).forward, (*l4Bench).bulk, (*l4Bench).flat, (*l4Bench).syn, (*l4Bench).short,
		(*l4Bench).memory, (*l4Bench).loops),
}

// Names of contestants of l4.
const (
	oursAFP   = "millrace afpacket"
	oursFwd   = "millrace forward"
	oursKern  = "millrace afpacket, kernel flows"
	oursKernX = "millrace afxdp, kernel flows"
	nftDNAT   = "nft DNAT"
	nftSNAT   = "nft DNAT+SNAT"
	nftThread = "nft DNAT, threaded"
	nginxUDP  = "nginx stream"
	routing   = "kernel routing"
	routed    = "kernel routing, threaded"
)

// l4Bench is the opened suite.
type l4Bench struct {
	e                 *harness.Env
	dir               string // of configurations
	millrace          harness.Peer
	packet, xsk       harness.Peer // in C
	nft, nginx, iperf string       // why it is not there; empty where it is
	testpmd           string
	nginxVersion      string
	testpmdVersion    string
	iperfVersion      string
}

// openL4 opens the measures of some groups.
func openL4(groups ...func(*l4Bench) ([]harness.Measure, error)) func(*harness.Env) (*harness.Bench, error) {
	return func(e *harness.Env) (*harness.Bench, error) {
		b, err := newL4Bench(e)
		if err != nil {
			return nil, err
		}
		var measures []harness.Measure
		for _, group := range groups {
			m, err := group(b)
			if err != nil {
				return nil, errors.Join(err, os.RemoveAll(b.dir))
			}
			measures = append(measures, m...)
		}
		return &harness.Bench{Measures: measures, Close: func() error { return os.RemoveAll(b.dir) }}, nil
	}
}

func newL4Bench(e *harness.Env) (*l4Bench, error) {
	if runtime.NumCPU() < 2 {
		return nil, errors.New("two CPUs are needed, one for the client and one for the gateway")
	}
	if os.Geteuid() != 0 {
		return nil, errors.New("network namespaces need root")
	}
	dir, err := os.MkdirTemp("", "millrace-bench-")
	if err != nil {
		return nil, err
	}
	b := &l4Bench{
		e: e, dir: dir, millrace: e.BuildMillrace(), packet: e.BuildC("packet"), xsk: e.BuildC("xsk"),
		nft: missing("nft"), nginx: missingNginx(dir), iperf: missing("iperf3"), testpmd: missing("dpdk-testpmd"),
	}
	if b.millrace.Absent != "" {
		return nil, errors.Join(errors.New("millrace: "+b.millrace.Absent), os.RemoveAll(dir))
	}
	b.nginxVersion, b.testpmdVersion = firstLine("nginx", "-v"), firstLine("dpkg-query", "-W", "dpdk-dev")
	b.iperfVersion = firstLine("iperf3", "--version")
	return b, nil
}

// missing says why a program cannot run, empty when it can.
func missing(name string) string {
	if _, err := exec.LookPath(name); err != nil {
		return name + " is not installed"
	}
	return ""
}

// missingNginx says why nginx cannot forward datagrams: Debian has the module for it in a package of its own.
func missingNginx(dir string) string {
	if why := missing("nginx"); why != "" {
		return why
	}
	conf := filepath.Join(dir, "module.conf")
	if err := os.WriteFile(conf, []byte("load_module modules/ngx_stream_module.so;\nevents {}\n"), 0o644); err != nil {
		return err.Error()
	}
	if exec.Command("nginx", "-t", "-q", "-c", conf, "-e", filepath.Join(dir, "module.log")).Run() != nil {
		return "nginx has no stream module: apt-get install libnginx-mod-stream"
	}
	return ""
}

func firstLine(name string, args ...string) string {
	said, _ := exec.Command(name, args...).CombinedOutput()
	line, _, _ := strings.Cut(strings.TrimSpace(string(said)), "\n")
	return line
}

// run is the part of a program that knows nothing of the harness.
func (b *l4Bench) run(s *site, version, ready string, argv ...string) harness.Part {
	runner := []string{b.e.Self, "role", "run", "-version", version, "-ready", ready, "--"}
	return harness.Part{Name: "gateway", Argv: append(runner, argv...), CPU: 1, In: s.gateway}
}

// A forwarder is a contestant between client and backend.
type forwarder struct {
	name, absent string
	options      siteOptions
	part         func(*site) []harness.Part // none where the kernel forwards on the sender's back
	to           string                     // what clients send to; empty is the service
}

// gatewayOf is our gateway with a configuration.
func (b *l4Bench) gatewayOf(name string, c gatewayConfig) forwarder {
	file, err := c.write(b.dir, strings.ReplaceAll(name, " ", "-"))
	f := forwarder{name: name, options: siteOptions{sums: true, gro: c.Driver == "afpacket"}}
	if err != nil {
		f.absent = err.Error()
	} else if _, err := config.Load(file); err != nil {
		line, _, _ := strings.Cut(strings.TrimSpace(err.Error()), "\n")
		f.absent = "the configuration is refused: " + line
	}
	f.part = func(s *site) []harness.Part {
		return []harness.Part{b.run(s, c.Driver, "msg=gateway", b.millrace.Path, "gateway", "-c", file)}
	}
	return f
}

// bare is our bump in the wire.
func (b *l4Bench) bare() forwarder {
	return forwarder{name: oursFwd, options: siteOptions{sums: true}, part: func(s *site) []harness.Part {
		return []harness.Part{b.run(s, "afxdp", "Ctrl-C ends", b.millrace.Path, "forward", "--driver", "afxdp", role.FrontDev, role.BackDev)}
	}}
}

// netfilter is the kernel with rules, on the sender's back or in a thread of its own. veth passes what
// a socket sends to that thread only if the sender's end has no segmentation offload, which goes with
// the checksum offload.
func (b *l4Bench) netfilter(name, rules string, thread bool) forwarder {
	f := forwarder{name: name, absent: b.nft, options: siteOptions{router: true, rules: rules, gro: true, sums: thread}}
	if rules == "" {
		f.absent, f.to = "", backendAddr
	}
	f.part = func(s *site) []harness.Part {
		if !thread {
			return nil
		}
		return []harness.Part{{Name: "gateway", Argv: []string{b.e.Self, "role", "napi", "-dev", role.FrontDev}, CPU: 1, In: s.gateway}}
	}
	return f
}

// nginxOf is nginx with one worker.
func (b *l4Bench) nginxOf(name string) forwarder {
	conf := filepath.Join(b.dir, "nginx.conf")
	f := forwarder{name: name, absent: b.nginx, options: siteOptions{router: true, local: true, gro: true}}
	if err := os.WriteFile(conf, []byte(fmt.Sprintf(nginxConf, b.dir)), 0o644); err != nil {
		f.absent = err.Error()
	}
	f.part = func(s *site) []harness.Part {
		return []harness.Part{b.run(s, b.nginxVersion, "", "nginx", "-c", conf, "-e", filepath.Join(b.dir, "nginx.log"))}
	}
	return f
}

// nginxConf is one process without a log. A UDP session lasts as long as packets come, which is
// cheaper than proxy_responses 0, where each packet opens one.
const nginxConf = `load_module modules/ngx_stream_module.so;
daemon off;
master_process off;
worker_rlimit_nofile 131072;
pid %[1]s/nginx.pid;
error_log %[1]s/nginx.log crit;
events { worker_connections 65000; multi_accept on; use epoll; }
stream {
	access_log off;
	server {
		listen ` + serviceAddr + `:53 udp reuseport rcvbuf=16m sndbuf=16m;
		proxy_pass ` + backendAddr + `:5353;
		proxy_timeout 60s;
	}
	server {
		listen ` + serviceAddr + `:80 backlog=4096;
		proxy_pass ` + backendAddr + `:8080;
	}
	server {
		listen ` + serviceAddr + `:5201;
		proxy_pass ` + backendAddr + `:5201;
		proxy_buffer_size 256k;
	}
}
`

// onSite runs f with a site of its own.
func onSite(o siteOptions, f func(*site) (harness.Sample, error)) (harness.Sample, error) {
	s, err := newSite(o)
	if err != nil {
		return harness.Sample{}, err
	}
	sample, err := f(s)
	return sample, errors.Join(err, s.close())
}

// contestant runs a forwarder between what run puts at its ends.
func (f forwarder) contestant(run func(ctx context.Context, t harness.Timing, s *site, f forwarder) (harness.Sample, error)) harness.Contestant {
	return harness.Contestant{Name: f.name, Absent: f.absent, Run: func(ctx context.Context, t harness.Timing) (harness.Sample, error) {
		return onSite(f.options, func(s *site) (harness.Sample, error) { return run(ctx, t, s, f) })
	}}
}
