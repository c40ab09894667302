package main

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/millrace/millrace/gateway/admin"
	"github.com/millrace/millrace/gateway/config"
)

// socketVariable is the environment variable that is the default of --socket.
const socketVariable = "MILLRACE_SOCKET"

// socketFlag adds --socket. Its default is the environment's, and that in the help the program's.
func socketFlag(cmd *cobra.Command, to *string, socket, what string) {
	cmd.Flags().StringVar(to, "socket", cmp.Or(os.Getenv(socketVariable), socket), what+", or $"+socketVariable)
	cmd.Flags().Lookup("socket").DefValue = socket
	completeFiles(cmd, "socket", "sock")
}

// control are the flags of the commands that ask a running gateway.
type control struct {
	socket string
	json   bool
}

// newControl completes a command that asks a running gateway: do does its work.
func newControl(c *console, cmd *cobra.Command, do func(ctx context.Context, g *admin.Client, f *control, args []string) error) *cobra.Command {
	var f control
	socketFlag(cmd, &f.socket, config.DefaultSocket, "unix socket")
	cmd.Flags().BoolVar(&f.json, "json", false, "print JSON")
	cmd.RunE = command(func(ctx context.Context, args []string) error {
		err := do(ctx, admin.NewClient(f.socket), &f, args)
		if e := new(admin.Error); errors.As(err, &e) && e.Code == http.StatusUnprocessableEntity {
			return coded{err, errReload}
		}
		if err != nil && ctx.Err() != nil {
			return errors.New("interrupted")
		}
		return err
	})
	return cmd
}

// exactly requires as many arguments as there are names.
func exactly(names ...string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) < len(names) {
			return usage("%s is missing", names[len(args)])
		}
		if len(args) > len(names) {
			more := args[len(names)]
			if ext := filepath.Ext(more); (ext == ".yaml" || ext == ".yml") && cmd.Flags().ShorthandLookup("c") != nil {
				return usage("%q is one argument too many; a configuration file is named by -c", more)
			}
			return usage("%q is one argument too many", more)
		}
		return nil
	}
}

// someOf refuses a command line without arguments, which are called name.
func someOf(name string) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		if len(args) == 0 {
			return usage("%s is missing", name)
		}
		return nil
	}
}

// done prints the result of a command that returns nothing: a line, or an empty document.
func (f *control) done(c *console, format string, args ...any) error {
	if f.json {
		return c.jsonLine(struct{}{})
	}
	c.printf(format+"\n", args...)
	return nil
}
