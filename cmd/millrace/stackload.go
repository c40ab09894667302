package main

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"github.com/millrace/millrace/internal/app/stackd"
	"github.com/millrace/millrace/internal/devargs"
	"github.com/millrace/millrace/pmd/device"
)

// addrFlag records addresses with the number of devices before them.
type addrFlag struct{ f *stackFlags }

// String implements pflag.Value.
func (a *addrFlag) String() string { return "" }

// Type implements pflag.Value.
func (a *addrFlag) Type() string { return "address" }

// Set implements pflag.Value.
func (a *addrFlag) Set(text string) error {
	if text != "dhcp" && text != "slaac" {
		if _, why := stackd.ParseAddress(text); why != "" {
			return fmt.Errorf("%s; say such as 198.18.0.2/24", why)
		}
	}
	a.f.addrs = append(a.f.addrs, fmt.Sprintf("%d %s", len(a.f.devices), text))
	return nil
}

// load puts the configuration together: the file, and then the flags.
func (f *stackFlags) load(named bool) (*stackd.Config, error) {
	cfg := stackd.New()
	switch {
	case f.config == "" && len(f.devices) == 0:
		return nil, usage("no device: name one with --dev, or a configuration file with -c")
	case f.config != "":
		var err error
		if cfg, err = f.read(); err != nil {
			return nil, stackConfigured(err, f.config)
		}
	default:
		cfg.Services = stackd.AllServices()
	}
	if f.engine != "" {
		if err := checkEngine(f.engine); err != nil {
			return nil, err
		}
		cfg.Engine = f.engine
	}
	cfg.ExtraProcessor = cfg.ExtraProcessor || f.extraProcessor
	if f.rdma && cfg.RDMA.Address == "" {
		cfg.RDMA.Address = "auto"
	}
	if named {
		cfg.Control.Socket = f.socket
	}
	if err := errors.Join(f.addDevices(cfg), f.addRoutes(cfg)); err != nil {
		return nil, err
	}
	if err := cfg.Check(); err != nil {
		return nil, coded{err, errUsage}
	}
	return cfg, nil
}

// read reads the file or standard input.
func (f *stackFlags) read() (*stackd.Config, error) {
	if f.config == standardInput {
		return stackd.Read(inputName(f.config), f.in)
	}
	return stackd.Load(f.config)
}

// reload returns the function that reads the configuration again; nil where there is no file.
func (f *stackFlags) reload(named bool) func() (*stackd.Config, error) {
	if f.config == "" || f.config == standardInput {
		return nil
	}
	return func() (*stackd.Config, error) { return f.load(named) }
}

// addDevices adds those of --dev with their --addr.
func (f *stackFlags) addDevices(cfg *stackd.Config) error {
	first := len(cfg.Devices)
	for _, text := range f.devices {
		name, driver, ok := strings.Cut(text, ":")
		if devargs.Is(text) {
			name, driver, ok = text, "", false
		}
		v := stackd.NewDevice(name)
		if ok {
			v.Driver = driver
		}
		if name == "" || !slices.Contains(device.Drivers, device.Driver(v.Driver)) {
			return usage("--dev %s: no driver %q; say auto, afxdp, afpacket or tap", text, v.Driver)
		}
		cfg.Devices = append(cfg.Devices, v)
	}
	for _, text := range f.addrs {
		var after int
		var what string
		_, _ = fmt.Sscanf(text, "%d %s", &after, &what) // as Set wrote it
		if after == 0 && len(cfg.Devices) > 1 || len(cfg.Devices) == 0 {
			return usage("--addr %s: its device is ambiguous; put it after its --dev", what)
		}
		v := &cfg.Devices[max(0, first+after-1)]
		switch what {
		case "dhcp":
			v.DHCP = true
		case "slaac":
			v.SLAAC = true
		default:
			p, _ := stackd.ParseAddress(what)
			v.Addresses = append(v.Addresses, p)
		}
	}
	return nil
}

// addRoutes adds those of --route.
func (f *stackFlags) addRoutes(cfg *stackd.Config) error {
	for _, text := range f.routes {
		r, err := stackd.ParseRoute(text)
		if err != nil {
			return usage("--route %v", err)
		}
		cfg.Routes = append(cfg.Routes, r)
	}
	return nil
}

// stackConfigured marks the errors of the configuration file.
func stackConfigured(err error, file string) error {
	path := new(fs.PathError)
	if errors.As(err, new(*stackd.ConfigError)) || errors.As(err, &path) && path.Path == file {
		return coded{err, errConfig}
	}
	return err
}

// stackCheckResult is the result of --check --json.
type stackCheckResult struct {
	Valid  bool             `json:"valid"`
	Errors []stackd.Problem `json:"errors"`
}

// checked prints the result of --check.
func (f *stackFlags) checked(c *console, cfg *stackd.Config, err error) error {
	ce := new(stackd.ConfigError)
	switch {
	case err != nil && (!f.json || !errors.As(err, &ce)):
		return err
	case err != nil:
		return errors.Join(c.json(stackCheckResult{Errors: ce.Problems}), coded{errShown, errConfig})
	case f.json:
		return c.json(stackCheckResult{Valid: true, Errors: []stackd.Problem{}})
	}
	for _, v := range cfg.Devices {
		c.printf("%s: %s\n", v.Name, v.Plan())
	}
	for _, s := range cfg.Services {
		c.printf("%s: %s\n", s.Kind, s.Plan())
	}
	c.printf("the configuration is valid\n")
	return nil
}
