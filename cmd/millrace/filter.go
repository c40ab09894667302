package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/millrace/millrace/filter/ebpf"
	"github.com/millrace/millrace/pmd/xdp"
)

// newFilter is the command of what stands apart from a gateway: programs in the kernel, rules, and what they find.
func newFilter(c *console) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "filter",
		Short: "Load eBPF programs, run inspection rules and packet filter expressions",
		Long: `load, attach, list and their sisters put eBPF programs into the kernel and on
interfaces, where they stay when the command ends.

check reads inspection rules, in Suricata's language, and reports what is wrong and
what is not supported; inspect runs them over captures.

expr compiles packet filter expressions, in the language of tcpdump; match runs them
over captures.`,
		Example: `  millrace filter load drop.o && millrace filter attach drop --xdp eth0
  millrace filter list
  millrace filter check emerging.rules
  millrace filter inspect local.rules trace.pcap
  millrace filter match 'tcp port 80' trace.pcap`,
		Args: unknownCommand,

		SuggestionsMinimumDistance: 2,
		RunE:                       showHelp,
	}
	cmd.AddCommand(newFilterLoad(c), newFilterAttach(c), newFilterDetach(c), newFilterReplace(c), newFilterUnload(c), newFilterList(c),
		newFilterStats(c), newFilterMap(c), newFilterCheck(c), newFilterInspect(c), newFilterExpr(c), newFilterMatch(c))
	return cmd
}

// count says how many, with the right form of the noun.
func count(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}

// filterFlags are those of all commands that work with eBPF objects.
type filterFlags struct {
	bpffs string
	json  bool
}

// filterCommand completes a command: do gets the store of the BPF file system. checks are of the command line, and come
// before anything is opened.
func filterCommand(c *console, cmd *cobra.Command, do func(s *ebpf.Store, f *filterFlags, args []string) error, checks ...func() error) *cobra.Command {
	return filterCommandContext(c, cmd, func(_ context.Context, s *ebpf.Store, f *filterFlags, args []string) error { return do(s, f, args) }, checks...)
}

// filterCommandContext is filterCommand for a command that takes time.
func filterCommandContext(c *console, cmd *cobra.Command, do func(context.Context, *ebpf.Store, *filterFlags, []string) error, checks ...func() error) *cobra.Command {
	var f filterFlags
	cmd.Flags().StringVar(&f.bpffs, "bpffs", "", "`folder` of the BPF file system (LIBXDP_BPFFS, or /sys/fs/bpf)")
	cmd.Flags().BoolVar(&f.json, "json", false, "print JSON")
	cmd.RunE = command(func(ctx context.Context, args []string) error {
		for _, check := range checks {
			if err := check(); err != nil {
				return err
			}
		}
		s, err := ebpf.Open(f.bpffs)
		if err != nil {
			return err
		}
		fs := s.FS()
		if fs.Mounted {
			note := ""
			if fs.Private {
				note = "; it belongs to this mount namespace and what is pinned there ends with it (enter network namespaces by nsenter --net)"
			}
			c.complain(fmt.Errorf("mounted the BPF file system at %s%s", fs.Root(), note))
		}
		if err = do(ctx, s, &f, args); errors.Is(err, ebpf.ErrUsage) {
			return coded{err, errUsage}
		}
		return err
	})
	return cmd
}

const filterLoadLong = `Load the programs and maps of an eBPF object (an ELF file of clang -target bpf) into
the kernel and pin them below the BPF file system, which is mounted if it is not.
Nothing is attached yet. The programs stay loaded when the command ends. CO-RE
relocations are resolved with the kernel's BTF.

A program that the verifier rejects is an error with the verifier's reason, and the
line of source code where the object has BTF; -v prints the whole log.

--json prints one object: schema, name, source, sha256, programs (list: name, section,
kind, id, tag, priority, actions, frags, alone) and maps (list: name, type, id,
key_size, value_size, max_entries).`

func newFilterLoad(c *console) *cobra.Command {
	var name string
	var verbose bool
	cmd := &cobra.Command{
		Use:   "load OBJECT.o",
		Short: "Load an eBPF object",
		Long:  filterLoadLong,
		Example: `  millrace filter load drop.o
  millrace filter load --name edge xdpfilt_dny_all.o`,
		Args: exactly("object file"),
	}
	cmd.Flags().StringVar(&name, "name", "", "`name` of the loaded object (the file's, without .o)")
	cmd.Flags().BoolVarP(&verbose, "verbose", "v", false, "print the whole log of the verifier")
	return filterCommand(c, cmd, func(s *ebpf.Store, f *filterFlags, args []string) error {
		o, err := s.Load(args[0], name)
		if err != nil {
			return loadError(err, verbose)
		}
		return showObject(c, f, o)
	})
}

// loadError returns err, with the verifier's whole log if verbose.
func loadError(err error, verbose bool) error {
	var v *ebpf.VerifierError
	if !verbose || !errors.As(err, &v) {
		return err
	}
	return fmt.Errorf("%w\n%s", err, strings.Join(v.Log, "\n"))
}

// showObject prints a loaded object.
func showObject(c *console, f *filterFlags, o ebpf.Object) error {
	if f.json {
		return c.json(o)
	}
	for _, p := range o.Programs {
		c.printf("%s/%s: program %d for %s\n", o.Name, p.Name, p.ID, p.Kind)
		if p.Alone != "" {
			c.printf("  it can be attached alone only: %s\n", p.Alone)
		}
	}
	for _, m := range o.Maps {
		c.printf("%s/%s: map %d, %s of %d\n", o.Name, m.Name, m.ID, m.Type, m.MaxEntries)
	}
	return nil
}

const filterAttachLong = `Attach a program of a loaded object to an interface. PROGRAM may be left out where the
object has one for the hook.

--xdp attaches it beside the XDP programs that are there, which a dispatcher of
libxdp's protocol calls by priority, the lowest first. xdp-loader and xdp-filter
add and remove programs of the same interface. --priority and --actions replace what
the object says; without either they are 50 and pass. A program that is attached
otherwise is in the way and is named.

--tc attaches it by tcx (Linux 6.6) behind those that are there, elsewhere or with
--clsact as a filter of the interface's clsact qdisc.

--json prints one object: schema, interface, hook, mode and program.`

// filterHook are the flags that name a hook.
type filterHook struct {
	xdp, tc   string
	direction string
}

func (h *filterHook) register(cmd *cobra.Command) {
	cmd.Flags().StringVar(&h.xdp, "xdp", "", "`interface` at whose XDP hook")
	cmd.Flags().StringVar(&h.tc, "tc", "", "`interface` at whose tc hook")
	cmd.Flags().StringVar(&h.direction, "direction", "", "with --tc: ingress or egress (the object's, or ingress)")
	complete(cmd, "xdp", interfaceNames)
	complete(cmd, "tc", interfaceNames)
	completeWords(cmd, "direction", "ingress", "egress")
}

// check returns an error unless one hook is named.
func (h *filterHook) check() error {
	switch {
	case (h.xdp == "") == (h.tc == ""):
		return usage("name one interface with --xdp or with --tc")
	case h.direction != "" && h.direction != "ingress" && h.direction != "egress":
		return usage("--direction %q: say ingress or egress", h.direction)
	case h.direction != "" && h.tc == "":
		return usage("--direction goes with --tc")
	}
	return nil
}

// attachResult is the result of attach --json.
type attachResult struct {
	Interface string `json:"interface"`
	Hook      string `json:"hook"`
	Mode      string `json:"mode"`
	Program   string `json:"program"`
}

func newFilterAttach(c *console) *cobra.Command {
	var h filterHook
	var mode string
	var actions []string
	var priority uint32
	var clsact bool
	cmd := &cobra.Command{
		Use:   "attach OBJECT[/PROGRAM] --xdp|--tc INTERFACE",
		Short: "Attach a loaded program to an interface",
		Long:  filterAttachLong,
		Example: `  millrace filter attach drop --xdp eth0
  millrace filter attach --priority 5 --actions pass,drop edge/count --xdp eth0
  millrace filter attach --direction egress edge/mark --tc eth0`,
		Args: exactly("program"),
	}
	h.register(cmd)
	cmd.Flags().StringVar(&mode, "mode", "any", "XDP `mode` where there is none yet: native, generic or any")
	cmd.Flags().Uint32Var(&priority, "priority", 0, "order among the programs of the hook, lowest first")
	cmd.Flags().StringSliceVar(&actions, "actions", nil, "XDP `actions` that continue with the next program; none: it ends the chain")
	cmd.Flags().BoolVar(&clsact, "clsact", false, "with --tc: at a clsact qdisc although the kernel has tcx")
	completeWords(cmd, "mode", "any", "native", "generic")
	var opts ebpf.XDPOptions
	check := func() (err error) {
		if h.tc != "" && priority > 0xffff {
			return usage("--priority %d: at tc it is 65535 at most", priority)
		}
		opts, err = xdpOptions(mode, priority, actions)
		return err
	}
	return filterCommand(c, cmd, func(s *ebpf.Store, f *filterFlags, args []string) error {
		r := attachResult{Interface: h.xdp + h.tc, Program: args[0]}
		if h.xdp != "" {
			if err := s.AttachXDP(args[0], h.xdp, opts); err != nil {
				return err
			}
			hooks, err := s.Hooks(h.xdp)
			if err != nil {
				return err
			}
			r.Hook = "xdp"
			for _, hook := range hooks {
				if hook.Hook == "xdp" {
					r.Mode = hook.Mode
				}
			}
		} else {
			var err error
			opts := ebpf.TCOptions{Direction: ebpf.Direction(h.direction), Clsact: clsact, Priority: uint16(priority)}
			if r.Mode, err = s.AttachTC(args[0], h.tc, opts); err != nil {
				return err
			}
			r.Hook = "tc"
		}
		if f.json {
			return c.json(r)
		}
		c.printf("%s is attached to %s at %s, %s\n", r.Program, r.Interface, r.Hook, r.Mode)
		return nil
	}, h.check, check)
}

// xdpOptions reads the flags of --xdp.
func xdpOptions(mode string, priority uint32, actions []string) (o ebpf.XDPOptions, err error) {
	switch mode {
	case "any":
	case "native":
		o.Mode = xdp.ModeNative
	case "generic":
		o.Mode = xdp.ModeGeneric
	default:
		return o, usage("--mode %q: say native, generic or any", mode)
	}
	o.Priority = priority
	for _, name := range actions {
		if name == "none" {
			o.NoActions = true
			continue
		}
		a, err := xdp.ParseAction(name)
		if err != nil {
			return o, coded{err, errUsage}
		}
		o.Actions |= a
	}
	return o, nil
}

// atMostOne refuses a command line with more than one argument.
func atMostOne(_ *cobra.Command, args []string) error {
	if len(args) > 1 {
		return usage("%q is one argument too many", args[1])
	}
	return nil
}

func newFilterDetach(c *console) *cobra.Command {
	var h filterHook
	cmd := &cobra.Command{
		Use:   "detach [OBJECT[/PROGRAM]] --xdp|--tc INTERFACE",
		Short: "Detach a program from an interface",
		Long: `Take a program off an interface. The other programs there stay, and the program stays
loaded. Of an object with several programs the one that is attached need not be named,
nor the object where one program is attached there.

--json prints one object: schema, interface, hook, mode and program.`,
		Example: `  millrace filter detach drop --xdp eth0
  millrace filter detach --tc eth0 --direction egress`,
		Args: atMostOne,
	}
	h.register(cmd)
	return filterCommand(c, cmd, func(s *ebpf.Store, f *filterFlags, args []string) error {
		r := attachResult{Interface: h.xdp + h.tc, Hook: "xdp", Program: strings.Join(args, "")}
		kind := ebpf.KindXDP
		if h.tc != "" {
			r.Hook, kind = "tc", ebpf.KindTC
		}
		err := error(nil)
		if len(args) == 0 {
			if r.Program, err = s.Attached(kind, r.Interface, ebpf.Direction(h.direction)); err != nil {
				return err
			}
		}
		if h.xdp != "" {
			err = s.DetachXDP(r.Program, h.xdp)
		} else {
			err = s.DetachTC(r.Program, h.tc, ebpf.Direction(h.direction))
		}
		if err != nil {
			return err
		}
		if f.json {
			return c.json(r)
		}
		c.printf("%s is off %s\n", r.Program, r.Interface)
		return nil
	}, h.check)
}

// filterList is the result of list --json.
type filterList struct {
	Objects []ebpf.Object `json:"objects"`
	Hooks   []ebpf.Hook   `json:"hooks"`
}

func newFilterList(c *console) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "list [INTERFACE]",
		Short: "List loaded objects and the programs of interfaces",
		Long: `List the loaded objects, and what the interfaces of this network namespace run at XDP
and tc, programs of others too, in the order in which packets meet them.

--json prints one object: schema, objects (as load prints them) and hooks (list:
interface, index, hook, mode, dispatcher, chain (list: id, name, object, priority,
actions, loaded_ns, note)).`,
		Example: `  millrace filter list
  millrace filter list eth0 --json`,
		Args:              cobra.MaximumNArgs(1),
		ValidArgsFunction: interfaceNames,
	}
	return filterCommand(c, cmd, func(s *ebpf.Store, f *filterFlags, args []string) (err error) {
		var l filterList
		if l.Objects, err = s.Objects(); err != nil {
			return err
		}
		if l.Hooks, err = s.Hooks(strings.Join(args, "")); err != nil {
			return err
		}
		if f.json {
			return c.json(l)
		}
		showFilterList(c, &l)
		return nil
	})
}

// shownMaps is the number of an object's maps that list prints; --json has all.
const shownMaps = 20

func showFilterList(c *console, l *filterList) {
	w := tabwriter.NewWriter(c.out, 0, 0, 2, ' ', 0)
	defer w.Flush()
	fmt.Fprintln(w, "OBJECT\tKIND\tID\tPRIORITY\tCONTINUES\tFROM")
	for _, o := range l.Objects {
		for _, p := range o.Programs {
			fmt.Fprintf(w, "%s/%s\t%s\t%d\t%s\t%s\t%s\n", o.Name, p.Name, p.Kind, p.ID, orDash(p.Priority), strings.Join(p.Actions, ","), o.Source)
		}
		for _, m := range o.Maps[:min(shownMaps, len(o.Maps))] {
			fmt.Fprintf(w, "%s/%s\tmap\t%d\t-\t%s\t\n", o.Name, m.Name, m.ID, fmt.Sprintf("%s of %d", m.Type, m.MaxEntries))
		}
		if more := len(o.Maps) - shownMaps; more > 0 {
			fmt.Fprintf(w, "%s\tand %s more maps\t\t\t\t\n", o.Name, group(uint64(more)))
		}
	}
	fmt.Fprintln(w, "\nINTERFACE\tHOOK\tMODE\tPRIORITY\tID\tPROGRAM\tCONTINUES\tOBJECT")
	for _, h := range l.Hooks {
		for _, p := range h.Chain {
			object := p.Object
			if p.Note != "" {
				object = p.Note
			}
			fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%d\t%s\t%s\t%s\n", h.Interface, h.Hook, h.Mode, orDash(p.Priority), p.ID, p.Name, strings.Join(p.Actions, ","), object)
		}
	}
}

func orDash(n uint32) string {
	if n == 0 {
		return "-"
	}
	return fmt.Sprint(n)
}
