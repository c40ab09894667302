package main

import (
	"context"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

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

// running asks the gateway that cmd would ask for names, and offers those that begin with prefix and are not in args;
// nothing where none answers.
func running(cmd *cobra.Command, ask func(context.Context, *admin.Client) ([]string, error), args []string, prefix string) ([]string, cobra.ShellCompDirective) {
	socket, err := cmd.Flags().GetString("socket")
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	ctx, cancel := context.WithTimeout(context.Background(), completionTimeout)
	defer cancel()
	names, _ := ask(ctx, admin.NewClient(socket)) // without an answer there is nothing to offer
	names = slices.DeleteFunc(names, func(name string) bool {
		return !strings.HasPrefix(name, prefix) || slices.Contains(args, name)
	})
	return names, cobra.ShellCompDirectiveNoFileComp
}

// serviceNames offers the services of the running gateway that are not named yet.
func serviceNames(cmd *cobra.Command, args []string, prefix string) ([]string, cobra.ShellCompDirective) {
	return running(cmd, func(ctx context.Context, g *admin.Client) ([]string, error) { return g.ServiceNames(ctx) }, args, prefix)
}

// backendNames offers the backends of a service of the running gateway; of all services where it is "".
func backendNames(cmd *cobra.Command, service, prefix string) ([]string, cobra.ShellCompDirective) {
	return running(cmd, func(ctx context.Context, g *admin.Client) ([]string, error) { return g.BackendNames(ctx, service) }, nil, prefix)
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
