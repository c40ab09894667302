package main

import (
	"context"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/millrace/millrace/gateway"
	"github.com/millrace/millrace/gateway/admin"
)

// completeWords offers fixed words for the values of a flag.
func completeWords(cmd *cobra.Command, flag string, words ...string) {
	complete(cmd, flag, cobra.FixedCompletions(words, cobra.ShellCompDirectiveNoFileComp))
}

// completeFiles offers files with one of the endings for the values of a flag.
func completeFiles(cmd *cobra.Command, flag string, endings ...string) {
	complete(cmd, flag, cobra.FixedCompletions(endings, cobra.ShellCompDirectiveFilterFileExt))
}

// complete sets what is offered for the values of a flag.
func complete(cmd *cobra.Command, flag string, offer cobra.CompletionFunc) {
	if err := cmd.RegisterFlagCompletionFunc(flag, offer); err != nil {
		panic(err) // no such flag
	}
}

// interfaceNames offers the machine's interfaces.
func interfaceNames(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	all, err := net.Interfaces()
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	var names []string
	for _, in := range all {
		names = append(names, in.Name)
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}

// twoInterfaces offers the interfaces as long as fewer than two are named.
func twoInterfaces(cmd *cobra.Command, args []string, prefix string) ([]string, cobra.ShellCompDirective) {
	if len(args) >= 2 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return interfaceNames(cmd, args, prefix)
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
	st, err := admin.NewClient(socket).Status(ctx, gateway.Selection{})
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
