package main

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"hash"
	"io"
	"math"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace/millrace/gateway/admin"
	"github.com/millrace/millrace/gateway/defence"
	"github.com/millrace/millrace/internal/testkit/testnet"
)

// order is what a client of downloads sends: which bytes, how many pieces, and the time from one to the next.
type order struct {
	number byte
	pieces uint32
	pause  time.Duration
}

const orderLen = 13

func (o order) encode() []byte {
	return binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint32([]byte{o.number}, o.pieces), uint64(o.pause))
}

func decodeOrder(b []byte) order {
	return order{b[0], binary.BigEndian.Uint32(b[1:]), time.Duration(binary.BigEndian.Uint64(b[5:]))}
}

// slowly serves downloads. A piece that comes late does not move what follows.
func slowly(t *testing.T, ns *testnet.Namespace) {
	t.Helper()
	var l net.Listener
	if err := ns.Do(func() (err error) { l, err = net.Listen("tcp", "198.18.1.2:8080"); return err }); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				request := make([]byte, orderLen)
				if _, err := io.ReadFull(conn, request); err != nil { // a probe
					return
				}
				o, next := decodeOrder(request), time.Now()
				for i := range o.pieces {
					if _, err := conn.Write(piece(o.number, int(i))); err != nil {
						return
					}
					next = next.Add(o.pause)
					time.Sleep(time.Until(next))
				}
			}()
		}
	}()
}

const pieceLen = 8 << 10

// piece returns a piece of a download.
func piece(number byte, i int) []byte {
	b := make([]byte, pieceLen)
	_, _ = rand.NewChaCha8([32]byte{number, byte(i), byte(i >> 8)}).Read(b)
	return b
}

// download opens a connection to the service, and returns how it goes on.
func download(ns *testnet.Namespace, o order) (finish func() (end time.Time, err error), err error) {
	var conn net.Conn
	err = ns.Do(func() (err error) {
		conn, err = net.DialTimeout("tcp", "198.18.0.10:80", 20*time.Second)
		return err
	})
	if err != nil {
		return nil, err
	}
	if _, err := conn.Write(o.encode()); err != nil {
		return nil, err
	}
	return func() (end time.Time, err error) {
		defer conn.Close()
		_ = conn.SetReadDeadline(time.Now().Add(time.Hour))
		got, want := sha256.New(), sha256.New()
		n, err := io.Copy(got, conn)
		end = time.Now()
		for i := range o.pieces {
			want.Write(piece(o.number, int(i)))
		}
		if err == nil && sum(got) != sum(want) {
			err = errors.New("other bytes than were sent")
		}
		if err != nil {
			err = fmt.Errorf("download %d, after %d bytes: %w", o.number, n, err)
		}
		return end, err
	}, nil
}

// saturation returns how many bytes per second pass through the gateway in downloads without a pause.
func saturation(t *testing.T, ns *testnet.Namespace) float64 {
	t.Helper()
	var all sync.WaitGroup
	var bytes atomic.Int64
	var conns []net.Conn
	for range 64 {
		if err := ns.Do(func() error {
			conn, err := net.DialTimeout("tcp", "198.18.0.10:80", 20*time.Second)
			conns = append(conns, conn)
			return err
		}); err != nil {
			t.Fatal(err)
		}
	}
	for i, conn := range conns {
		if _, err := conn.Write(order{number: byte(i), pieces: math.MaxUint32}.encode()); err != nil {
			t.Fatal(err)
		}
		all.Go(func() {
			for b := make([]byte, 64<<10); ; {
				n, err := conn.Read(b)
				if bytes.Add(int64(n)); err != nil {
					return
				}
			}
		})
	}
	before, idle, begin := bytes.Load(), idleShare(t), time.Now()
	time.Sleep(calibration)
	rate := float64(bytes.Load()-before) / time.Since(begin).Seconds()
	t.Logf("%d downloads without a pause: %.0f MB/s, processors %.0f %% idle; half of it is offered", len(conns), rate/1e6, idle())
	for _, conn := range conns {
		conn.Close()
	}
	all.Wait()
	return rate
}

func sum(h hash.Hash) string { return string(h.Sum(nil)) }

// TestUpgradesCarryConnectionsOfServices upgrades a gateway of services while downloads pass, to a larger table, to a program that dies as it
// serves, and to CPUs: all downloads are whole, new connections are served, and what an operator has set stays. With MILLRACE_SOAK there
// are 500 downloads of that time, ten upgrades and five that fail; with MILLRACE_SOAK_LOAD=half they are at half of the rate that the
// gateway passes.
func TestUpgradesCarryConnectionsOfServices(t *testing.T) {
	t.Parallel()
	for _, driver := range []string{"afpacket", "afxdp"} {
		t.Run(driver, func(t *testing.T) {
			downloads, pieces, rounds, pause := 50, 200, 1, 20*time.Millisecond
			later, every := pieces, time.Duration(0) // pieces of downloads that begin between upgrades, and the time from one upgrade to the next
			long, err := time.ParseDuration(os.Getenv("MILLRACE_SOAK"))
			if err == nil { // at 16 MB/s
				downloads, rounds, pause = 500, 5, 250*time.Millisecond
				pieces = int(long / pause)
				later = pieces
			}
			client, middle, server := gatewaySite(t, "mr-cli-up-"+driver)
			slowly(t, server)
			dir := t.TempDir()
			file, socket := filepath.Join(dir, "gw.yaml"), filepath.Join(dir, "gw.sock")
			config := fmt.Sprintf(gatewayConfig, socket, driver, driver)
			write := func(more string) {
				t.Helper()
				if err := os.WriteFile(file, []byte(config+more), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			write("")
			s := &upgradeSite{t: t, file: file, socket: socket}
			cmd := program("gateway", "-c", file)
			cmd.Stdout, cmd.Stderr = &s.log, &s.log
			if err := middle.Start(cmd); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				_, _, _ = run("gateway", "stop", "--socket", socket)
				_ = cmd.Process.Kill()
				_ = cmd.Wait()
				if t.Failed() {
					t.Log(s.log.String())
				}
			})
			s.log.until(t, "msg=gateway")
			if _, _, problem := tell(socket, exitOK, "weight", "web", "one", "7"); problem != "" {
				t.Error(problem)
			}
			if atHalf() {
				pause = time.Duration(float64(downloads) * pieceLen * 2 / saturation(t, client) * float64(time.Second))
				pieces, later, every = int(long/pause), int(long/pause)/10, long/time.Duration(2*rounds+1)
			}
			var all sync.WaitGroup
			var mu sync.Mutex
			var latest time.Duration // how long after its time a download has ended
			failed := make(chan error, 4*downloads)
			begin := func(first, n, pieces int) {
				t.Helper()
				for i := range n {
					var finish func() (time.Time, error)
					var err error
					o := order{byte(first + i), uint32(pieces), pause}
					due := time.Now().Add(time.Duration(pieces) * pause)
					if finish, err = download(client, o); err != nil {
						t.Fatal(err)
					}
					all.Go(func() {
						end, err := finish()
						if err != nil {
							failed <- err
						}
						mu.Lock()
						defer mu.Unlock()
						latest = max(latest, end.Sub(due))
					})
				}
			}
			started := time.Now()
			begin(0, downloads, pieces)
			old := cmd.Process.Pid
			changes := []string{"\ntable: {size: 200000}\n", "dies", "\ncpus: none\n"}
			upgrades := 0
			for i := range rounds * len(changes) {
				more := changes[i%len(changes)]
				if more == "dies" {
					dies := script(t, fmt.Sprintf("#!/bin/sh\n(sleep 0.7; kill -9 $$) >/dev/null 2>&1 &\nexec %s \"$@\"\n", os.Args[0]))
					_, out, problem := tell(socket, exitFailure, "upgrade", "--binary", dies)
					if problem != "" || !strings.Contains(out, "this gateway goes on") {
						t.Error(out, problem)
					}
					continue
				}
				write(more)
				upgrades++
				time.Sleep(time.Until(started.Add(time.Duration(upgrades) * every)))
				res := s.upgrade()
				if res.Gap <= 0 || res.Connections < downloads || len(res.Lost) > 0 {
					t.Errorf("upgrade %d: %+v", i, res)
				}
				t.Logf("%d connections, %v without a process", res.Connections, time.Duration(res.Gap))
				sometime(t, "the end of the old process", func() bool { return exited(old) })
				old = res.PID
				begin(100+i, 5, later)
			}
			all.Wait()
			t.Logf("%d downloads of %d pieces, one in %v, and %d upgrades: the latest ended %v after its time", downloads, pieces, pause, upgrades, latest.Round(time.Millisecond))
			close(failed)
			for err := range failed {
				t.Error(err)
			}
			var st admin.Status
			_, out, _ := tell(socket, exitOK, "status", "--json")
			decode(t, out, &st)
			if b := st.Gateway.Services[0].Backends[0]; b.Weight != 7 || !b.OperatorWeight {
				t.Errorf("%+v", b)
			}
		})
	}
}

// TestUpgradesCarryVerdicts upgrades a gateway with a defence, of services and of listeners alone, and fails to: its verdicts stay, and the
// program is at the devices.
func TestUpgradesCarryVerdicts(t *testing.T) {
	t.Parallel()
	listeners := `
admin: {socket: %s}
listeners: [{name: web, address: "198.18.0.254:80", protocol: HTTP}]
routes: [{name: r, rules: [{filters: [{type: FixedResponse, status_code: 200, body: one}]}]}]
`
	for name, config := range map[string]string{
		"afxdp": gatewayConfig + "defence: {}\n", "afpacket": gatewayConfig + "defence: {}\n", "listeners": listeners + "defence: {devices: [a]}\n",
	} {
		t.Run(name, func(t *testing.T) {
			client, middle, server := gatewaySite(t, "mr-cli-ver-"+name)
			serve(t, server)
			dir := t.TempDir()
			s := &upgradeSite{t: t, file: filepath.Join(dir, "gw.yaml"), socket: filepath.Join(dir, "gw.sock")}
			text := fmt.Sprintf(config, s.socket, name, name)
			text, _, _ = strings.Cut(text, "%!(EXTRA")
			s.write(text)
			cmd := program("gateway", "-c", s.file)
			cmd.Stdout, cmd.Stderr = &s.log, &s.log
			if err := middle.Start(cmd); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				_, _, _ = run("gateway", "stop", "--socket", s.socket)
				_ = cmd.Process.Kill()
				_ = cmd.Wait()
				if t.Failed() {
					t.Log(s.log.String())
				}
			})
			s.log.until(t, "msg=gateway")
			for _, args := range [][]string{{"198.18.0.77", "--time", "1h"}, {"198.18.0.78", "--forever"}} {
				if _, _, problem := tell(s.socket, exitOK, append([]string{"defence", "add"}, args...)...); problem != "" {
					t.Fatal(problem)
				}
			}
			defends := func(when string) {
				t.Helper()
				var st defence.Status
				sometime(t, "the program at the devices "+when, func() bool {
					_, out, _ := tell(s.socket, exitOK, "defence", "list", "--json")
					decode(t, out, &st)
					return !slices.ContainsFunc(st.Devices, func(d defence.DeviceStatus) bool { return !d.On })
				})
				if len(st.Verdicts) != 2 || st.Verdicts[0].Left < 3000 || st.Verdicts[1].Left != 0 || len(st.Devices) == 0 {
					t.Errorf("%s: %+v", when, st)
				}
				if name != "listeners" {
					awaitAnswer(t, client, &s.log)
				}
			}
			defends("before")
			dies := script(t, fmt.Sprintf("#!/bin/sh\n(sleep 0.8; kill -9 $$) >/dev/null 2>&1 &\nexec %s \"$@\"\n", os.Args[0]))
			if _, out, problem := tell(s.socket, exitFailure, "upgrade", "--binary", dies); problem != "" || !strings.Contains(out, "this gateway goes on") {
				t.Error(out, problem)
			}
			defends("after an upgrade that fails")
			s.upgrade()
			defends("after an upgrade")
		})
	}
}
