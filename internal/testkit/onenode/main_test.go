package onenode

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"testing"
	"time"

	"github.com/millrace/millrace"
	"github.com/millrace/millrace/gateway/config"
	"github.com/millrace/millrace/gateway/daemon"
	"github.com/millrace/millrace/gpukern"
	"github.com/millrace/millrace/ip"
	"github.com/millrace/millrace/l4/control"
	"github.com/millrace/millrace/l4/datapath"
	"github.com/millrace/millrace/node"
	"github.com/millrace/millrace/node/nexthop"
	"github.com/millrace/millrace/pmd"
	"github.com/millrace/millrace/pmd/device"
	"github.com/millrace/millrace/socket"
	"github.com/millrace/millrace/stack"
	"github.com/millrace/millrace/stack/host"
)

// configEnv makes the test's binary the process that is tested: the variable names the gateway's file.
const configEnv = "MILLRACE_TEST_ONENODE"

func TestMain(m *testing.M) {
	file := os.Getenv(configEnv)
	if file == "" {
		os.Exit(m.Run())
	}
	if err := serve(file); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// summary is what the process prints when it ends.
type summary struct {
	Counters node.Counters
	Devices  []node.DeviceCounters
	Loops    []stack.Stats
}

// process is one node with a gateway and a host.
type process struct {
	node  *node.Node
	gate  *control.Gateway
	stack *socket.Stack
	http  http.Server
}

// serve runs the process until its input ends. Each line of input names a file, which becomes the gateway's
// configuration; the answer is a line with the error, "" without one.
func serve(file string) error {
	p := new(process)
	if err := p.open(file); err != nil {
		return err
	}
	ended := make(chan error, 1)
	go func() { ended <- p.node.Run(context.Background()) }()
	if err := p.listen(); err != nil {
		return err
	}
	if err := p.askItself(); err != nil {
		return err
	}
	fmt.Println("ready")
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		text := ""
		if err := p.reload(in.Text()); err != nil {
			text = err.Error()
		}
		fmt.Println(text)
	}
	p.node.Stop()
	if err := <-ended; err != nil {
		return err
	}
	sum := summary{Counters: p.node.Counters(), Devices: p.node.DeviceCounters()}
	for _, l := range p.node.Loops() {
		sum.Loops = append(sum.Loops, l.Stats())
	}
	if err := json.NewEncoder(os.Stdout).Encode(sum); err != nil {
		return err
	}
	return errors.Join(p.gate.Close(), p.node.Close())
}

func (p *process) open(file string) error {
	cfg, err := config.Load(file)
	if err != nil {
		return err
	}
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	dev := cfg.Devices[0]
	p.node, err = node.Open(node.Config{
		Devices: []node.Device{{Name: dev.Name, Driver: device.Driver(dev.Driver), Mode: dev.Mode}}, Loops: cfg.Loops(),
		Ops: gpukern.OpParse | gpukern.OpChecksum | gpukern.OpHash, Log: log,
	})
	if err != nil {
		return err
	}
	if err := errors.Join(p.addGateway(cfg), p.addHost()); err != nil {
		return err
	}
	return p.node.Start()
}

func (p *process) addGateway(cfg *config.Config) error {
	link := p.node.Links()[0]
	resolver, err := nexthop.NewKernel([]string{link.Name})
	if err != nil {
		return err
	}
	p.gate, err = control.Open(cfg, control.Options{
		Devices: []datapath.Device{{Name: link.Name, MAC: link.MAC, MTU: link.MTU}}, Resolver: resolver,
	})
	if err != nil {
		return err
	}
	var handlers []stack.Handler
	for i, h := range p.gate.Handlers() {
		h.SetOutput(p.node.Loops()[i].Output())
		handlers = append(handlers, h)
	}
	return p.node.Add(node.Service{
		Name: "gateway", Handlers: handlers, Claims: func() []pmd.Rule { return daemon.Rules(p.gate.Steering()) },
	})
}

func (p *process) addHost() error {
	g, err := host.New(host.Config{Loops: p.node.Loops(), Dispatched: true})
	if err != nil {
		return err
	}
	for _, a := range []string{hostAddr, movingAddr, backAddr} {
		if err := g.AddAddr(0, netip.PrefixFrom(netip.MustParseAddr(a), 16), ip.Static, true); err != nil {
			return err
		}
	}
	p.stack = socket.Attach(g, socket.AttachConfig{Done: p.node.Ended()})
	s := millrace.Service(p.stack)
	s.Shutdown = p.shutdown
	return p.node.Add(s)
}

// listen serves HTTP at the host's addresses.
func (p *process) listen() error {
	p.http.Handler = respond("host")
	for _, address := range []string{net.JoinHostPort(hostAddr, "80"), net.JoinHostPort(movingAddr, "8080"), net.JoinHostPort(backAddr, "8080"), "127.0.0.1:80"} {
		l, err := p.stack.Listen("tcp", address)
		if err != nil {
			return err
		}
		go p.http.Serve(l)
	}
	c, err := p.stack.ListenPacket("udp", net.JoinHostPort(movingAddr, "53"))
	if err != nil {
		return err
	}
	go echoDatagrams(c)
	return nil
}

// askItself connects the host to itself: by its loopback address, and by an address and port that are the
// gateway's for everybody else.
func (p *process) askItself() error {
	for _, address := range []string{"127.0.0.1:80", movingAddr + ":8080", hostAddr + ":80"} {
		c := http.Client{Transport: &http.Transport{DialContext: p.stack.DialContext, DisableKeepAlives: true}, Timeout: 10 * time.Second}
		resp, err := c.Get("http://" + address + "/")
		if err != nil {
			return err
		}
		resp.Body.Close()
	}
	return nil
}

// shutdown finishes the host's connections while the loops run.
func (p *process) shutdown() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = p.http.Shutdown(ctx)
	_ = p.stack.Close()
}

func (p *process) reload(file string) error {
	cfg, err := config.Load(file)
	if err != nil {
		return err
	}
	cfg.SetQueues(len(p.node.Loops()))
	if err := p.gate.Reload(cfg); err != nil {
		return err
	}
	return p.node.Update()
}

// respond answers requests with the name of who serves.
func respond(name string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, name) })
}
