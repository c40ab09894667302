package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/millrace/millrace/bench/harness"
	"github.com/millrace/millrace/bench/role"
)

// program is the part of a program that knows nothing of the harness.
func program(name string, host bool, version []string, ready string, argv ...string) shimPart {
	p := shimPart{name: name, host: host, cpu: peerCPU, argv: argv, program: true, flags: []string{"-ready", ready}}
	if host {
		p.cpu = hostCPU
	}
	if version != nil && missing(version[0]) == "" {
		p.version = firstLine(version[0], version[1:]...)
	}
	return p
}

// counter is a role that asks a program how much it has done.
func (b *shimBench) counter(args ...string) shimPart {
	return shimPart{name: "counter", cpu: peerCPU, argv: append([]string{b.e.Self, "role"}, args...)}
}

// settled is the time before the window of rows whose clients open several connections.
const settled = 500 * time.Millisecond

// bulkRows are iperf3 with the program under test as the client, in both directions.
func (b *shimBench) bulkRows() (all []shimRow) {
	port := strconv.Itoa(role.BulkPort)
	for _, way := range []struct{ name, flag string }{{"sends", "--no-delay"}, {"receives", "--reverse"}} {
		server := shimPart{name: "server", cpu: peerCPU, argv: []string{
			b.e.Self, "role", "bulk", "-any-end", "-ready", "Server listening", "--", "iperf3", "--forceflush", "-s", "-p", port,
		}}
		client := program("client", true, []string{"iperf3", "-v"}, "connected to", "iperf3", "--forceflush", "-c", peerAddr, "-p", port, "-t", "3600", way.flag)
		client.flags = append(client.flags, "-any-end") // its exit code says that it was stopped
		all = append(all, shimRow{
			name: "iperf3 " + way.name, unit: "byte", part: "server", count: "bytes", needs: []string{"iperf3"}, warmup: settled,
			parts: []shimPart{server, client}, gates: atLeast(0.8),
		})
	}
	return all
}

func (b *shimBench) redisRows() (all []shimRow) {
	const port = "6379"
	server := program("server", true, []string{"redis-server", "-v"}, "Ready to accept connections",
		"redis-server", "--port", port, "--bind", hostAddr, "--protected-mode", "no", "--save", "", "--dir", b.dir)
	for _, o := range []struct {
		name, pipeline string
		gates          []harness.Gate
	}{
		{"redis GET, 50 connections, 16 at once", "16", atLeast(0.6)},
		{"redis GET, 50 connections, one at a time", "1", atLeast(0.9)},
	} {
		client := program("client", false, nil, "", "redis-benchmark", "-h", hostAddr, "-p", port, "-t", "get", "-c", "50", "-P", o.pipeline, "-n", "1000000000", "-q")
		all = append(all, shimRow{
			name: o.name, unit: "request", part: "counter", count: "commands", needs: []string{"redis-server", "redis-benchmark"}, warmup: settled,
			parts: []shimPart{server, b.counter("redis-count", "-at", hostAddr+":"+port), client}, gates: o.gates,
		})
	}
	return all
}

// Ports of nginx.
const (
	nginxSmall   = "8080" // a file of 1 KiB, and /status
	nginxKept    = "8081" // proxy_pass over connections that stay open
	nginxEach    = "8082" // proxy_pass by a connection for each request
	nginxBackend = "8083" // at the peer
)

// nginxRows have wrk at the peer. Where nginx is a proxy, its backend is another nginx at the peer.
func (b *shimBench) nginxRows() (all []shimRow) {
	host, peer := filepath.Join(b.dir, "nginx-host.conf"), filepath.Join(b.dir, "nginx-peer.conf")
	nginx := func(name string, host bool, conf string) shimPart {
		return program(name, host, []string{"nginx", "-v"}, "", "nginx", "-e", filepath.Join(b.dir, name+".log"), "-c", conf)
	}
	for _, o := range []struct{ name, port string }{
		{"nginx, file of 1 KiB", nginxSmall},
		{"nginx proxy_pass, connections stay open", nginxKept},
		{"nginx proxy_pass, a connection for each request", nginxEach},
	} {
		parts := []shimPart{
			nginx("server", true, host),
			b.counter("nginx-count", "-at", hostAddr+":"+nginxSmall),
			program("client", false, nil, "", "wrk", "-t1", "-c32", "-d1h", "http://"+hostAddr+":"+o.port+"/small"),
		}
		if o.port != nginxSmall {
			parts = append([]shimPart{nginx("backend", false, peer)}, parts...)
		}
		all = append(all, shimRow{
			name: o.name, unit: "request", part: "counter", count: "requests", needs: []string{"nginx", "wrk"}, warmup: settled, parts: parts, gates: atLeast(0.6),
			prepare: func() error {
				return errors.Join(
					os.WriteFile(filepath.Join(b.dir, "small"), []byte(strings.Repeat("x", 1<<10)), 0o644),
					os.WriteFile(host, []byte(b.nginx("host", hostAddr)), 0o644), os.WriteFile(peer, []byte(b.nginx("peer", peerAddr)), 0o644),
				)
			},
		})
	}
	return all
}

// nginx returns a configuration: the host has the file and the proxies, the peer the backend.
func (b *shimBench) nginx(side, addr string) string {
	var w strings.Builder
	fmt.Fprintf(&w, "worker_processes 1;\ndaemon off;\nuser root;\npid %s/nginx-%s.pid;\nevents { worker_connections 1024; }\nhttp {\n", b.dir, side)
	w.WriteString("access_log off; sendfile on; keepalive_requests 1000000000; root " + b.dir + ";\n")
	for _, kind := range []string{"client_body", "proxy", "fastcgi", "uwsgi", "scgi"} {
		fmt.Fprintf(&w, "%s_temp_path %s/%s-%s;\n", kind, b.dir, side, kind)
	}
	if side == "peer" {
		fmt.Fprintf(&w, "server { listen %s:%s; location / {} }\n}\n", addr, nginxBackend)
		return w.String()
	}
	fmt.Fprintf(&w, "upstream kept { server %s:%s; keepalive 32; keepalive_requests 1000000000; }\n", peerAddr, nginxBackend)
	fmt.Fprintf(&w, "server { listen %s:%s; location / {} location = /status { stub_status; } }\n", addr, nginxSmall)
	fmt.Fprintf(&w, "server { listen %s:%s; location / { proxy_pass http://kept; proxy_http_version 1.1; proxy_set_header Connection \"\"; } }\n", addr, nginxKept)
	fmt.Fprintf(&w, "server { listen %s:%s; location / { proxy_pass http://%s:%s; } }\n}\n", addr, nginxEach, peerAddr, nginxBackend)
	return w.String()
}
