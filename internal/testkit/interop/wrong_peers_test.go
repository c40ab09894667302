package interop

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/testkit/testnet"
)

// lane is a proxy's listeners and the back end behind them. Lanes are independent, so that cases run side by side.
type lane struct {
	network   string // of both listeners
	http1, h2 string // their addresses; "" is none
	backend   *recorder
}

const lanes = 48

// socketDir returns a folder for sockets, whose names must be short.
func socketDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "mr")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// unixLanes returns lanes over sockets in a folder.
func unixLanes(t *testing.T, dir string) (all []*lane) {
	for i := range lanes {
		backend := newRecorder(t, "unix", fmt.Sprintf("%s/b%d", dir, i))
		all = append(all, &lane{"unix", fmt.Sprintf("%s/h%d", dir, i), fmt.Sprintf("%s/2h%d", dir, i), backend})
	}
	return all
}

// The peers have their own defaults wherever the test does not need something else.
const nginxHead = `
daemon off; master_process off; pid %[1]s/pid; error_log stderr crit;
events { worker_connections 4096; }
http {
	access_log off; client_body_temp_path %[1]s/body; proxy_temp_path %[1]s/proxy;
	fastcgi_temp_path %[1]s/fastcgi; uwsgi_temp_path %[1]s/uwsgi; scgi_temp_path %[1]s/scgi;
	proxy_http_version 1.1; proxy_set_header Connection ""; proxy_set_header Host $host;
`

// nginxLanes starts nginx.
func nginxLanes(t *testing.T) []*lane {
	testnet.Program(t, "nginx")
	dir := socketDir(t)
	all := unixLanes(t, dir)
	conf := fmt.Sprintf(nginxHead, dir)
	for i, l := range all {
		conf += fmt.Sprintf("upstream b%d { server unix:%s/b%d; }\nserver { listen unix:%s; listen unix:%s http2; location / { proxy_pass http://b%d; } }\n", i, dir, i, l.http1, l.h2, i)
	}
	started(t, dir, conf+"}\n", all, "nginx", "-p", dir, "-c", dir+"/conf")
	return all
}

// haproxyLanes starts HAProxy.
func haproxyLanes(t *testing.T) []*lane {
	testnet.Program(t, "haproxy")
	dir := socketDir(t)
	all := unixLanes(t, dir)
	conf := "global\n maxconn 4000\ndefaults\n mode http\n timeout connect 20s\n timeout client 60s\n timeout server 60s\n"
	for i, l := range all {
		conf += fmt.Sprintf("frontend f%d\n bind unix@%s\n bind unix@%s proto h2\n default_backend b%d\nbackend b%d\n server s unix@%s/b%d\n", i, l.http1, l.h2, i, i, dir, i)
	}
	started(t, dir, conf, all, "haproxy", "-db", "-f", dir+"/conf")
	return all
}

// started runs a program until the test ends, and waits for its listeners.
func started(t *testing.T, dir, conf string, all []*lane, name string, args ...string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, "conf"), []byte(conf), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(name, args...)
	var out strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	t.Cleanup(func() { _ = cmd.Process.Kill(); <-ended; ended <- nil })
	for _, l := range all {
		for _, addr := range []string{l.http1, l.h2} {
			for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(10 * time.Millisecond) {
				c, err := net.Dial(l.network, addr)
				if err == nil {
					_ = c.Close()
					break
				}
				select {
				case err := <-ended:
					ended <- err
					t.Fatalf("%s has ended: %v\n%s", name, err, out.String())
				default:
				}
				if time.Now().After(deadline) {
					t.Fatalf("%s does not listen: %v", name, err)
				}
			}
		}
	}
}
