package main

import (
	"cmp"
	"context"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/millrace/millrace/gateway"
	"github.com/millrace/millrace/gateway/admin"
)

// socketVariable is the environment variable that is the default of --socket.
const socketVariable = "MILLRACE_SOCKET"

// socketFlag adds --socket. Its default is the environment's, and that in the help the program's.
func socketFlag(cmd *cobra.Command, to *string, socket, what string) {
	cmd.Flags().StringVar(to, "socket", cmp.Or(os.Getenv(socketVariable), socket), what+", or $"+socketVariable)
	cmd.Flags().Lookup("socket").DefValue = socket
	completeFiles(cmd, "socket", "sock")
}

// completionTimeout bounds the time that a shell waits for a gateway.
const completionTimeout = 500 * time.Millisecond

// runningServices asks the gateway that cmd would ask for its services; nil where none answers.
func runningServices(cmd *cobra.Command) []gateway.ServiceStatus {
	socket, err := cmd.Flags().GetString("socket")
	if err != nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), completionTimeout)
	defer cancel()
	st, err := admin.NewClient(socket).Status(ctx)
	if err != nil {
		return nil
	}
	return st.Gateway.Services
}

// serviceNames offers the services of the running gateway that are not named yet.
func serviceNames(cmd *cobra.Command, args []string, prefix string) ([]string, cobra.ShellCompDirective) {
	var names []string
	for _, s := range runningServices(cmd) {
		if strings.HasPrefix(s.Name, prefix) && !slices.Contains(args, s.Name) {
			names = append(names, s.Name)
		}
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}

// backendNames offers the backends of a service of the running gateway; of all services where it is "".
func backendNames(cmd *cobra.Command, service, prefix string) (names []string, _ cobra.ShellCompDirective) {
	for _, s := range runningServices(cmd) {
		if service != "" && s.Name != service {
			continue
		}
		for _, b := range s.Backends {
			if strings.HasPrefix(b.Name, prefix) && !slices.Contains(names, b.Name) {
				names = append(names, b.Name)
			}
		}
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}

// serviceAndBackend offers the first two arguments of the commands SERVICE BACKEND, and words for a third.
func serviceAndBackend(third ...string) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, prefix string) ([]string, cobra.ShellCompDirective) {
		switch len(args) {
		case 0:
			return serviceNames(cmd, args, prefix)
		case 1:
			return backendNames(cmd, args[0], prefix)
		case 2:
			return third, cobra.ShellCompDirectiveNoFileComp
		}
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
}

// completeConnections offers services and backends for the flags of gateway connections.
func completeConnections(cmd *cobra.Command) {
	complete(cmd, "service", func(cmd *cobra.Command, _ []string, prefix string) ([]string, cobra.ShellCompDirective) {
		return serviceNames(cmd, nil, prefix)
	})
	complete(cmd, "backend", func(cmd *cobra.Command, _ []string, prefix string) ([]string, cobra.ShellCompDirective) {
		service, _ := cmd.Flags().GetString("service")
		return backendNames(cmd, service, prefix)
	})
}
