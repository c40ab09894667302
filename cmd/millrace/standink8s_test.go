package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
)

// manifest is an object of Kubernetes, with the keys that the stand-in acts on, and those that it only reads. A key beyond these is an
// error: nothing would show that it is right. TestManifestsOfTheRecipe of internal/testkit/interop has them all decoded by Kubernetes' types.
type manifest struct {
	APIVersion string `yaml:"apiVersion"`
	Kind       string
	Metadata   struct {
		Name, Namespace string
		Labels          map[string]string
	}
	Data map[string]string
	Spec struct {
		Selector       any
		UpdateStrategy any `yaml:"updateStrategy"`
		Template       struct {
			Metadata any
			Spec     podSpec
		}
	}
}

type podSpec struct {
	HostNetwork   bool   `yaml:"hostNetwork"`
	DNSPolicy     string `yaml:"dnsPolicy"`
	Grace         int    `yaml:"terminationGracePeriodSeconds"`
	ShareProcess  bool   `yaml:"shareProcessNamespace"` // the program is not process 1
	ServiceLinks  bool   `yaml:"enableServiceLinks"`
	MountToken    bool   `yaml:"automountServiceAccountToken"`
	PriorityClass string `yaml:"priorityClassName"`
	NodeSelector  any    `yaml:"nodeSelector"`
	Tolerations   any
	Containers    []podContainer
	Volumes       []struct {
		Name      string
		ConfigMap struct{ Name string } `yaml:"configMap"`
		EmptyDir  *struct {
			Medium string
		} `yaml:"emptyDir"`
	}
}

type podContainer struct {
	Name, Image string
	Args        []string
	Env         []struct{ Name, Value string }
	Ports       any
	Resources   any
	Lifecycle   struct {
		PreStop struct {
			Sleep struct{ Seconds int }
		} `yaml:"preStop"`
	}
	Security struct {
		RunAsNonRoot bool  `yaml:"runAsNonRoot"`
		RunAsUser    int   `yaml:"runAsUser"`
		RunAsGroup   int   `yaml:"runAsGroup"`
		ReadOnly     bool  `yaml:"readOnlyRootFilesystem"`
		Escalation   *bool `yaml:"allowPrivilegeEscalation"`
		Seccomp      any   `yaml:"seccompProfile"`
		Capabilities struct{ Add, Drop []string }
	} `yaml:"securityContext"`
	Readiness probe `yaml:"readinessProbe"`
	Liveness  probe `yaml:"livenessProbe"`
	Mounts    []struct {
		Name     string
		Path     string `yaml:"mountPath"`
		ReadOnly bool   `yaml:"readOnly"`
	} `yaml:"volumeMounts"`
}

type probe struct {
	HTTPGet struct {
		Host, Path string
		Port       int
	} `yaml:"httpGet"`
	Period    int `yaml:"periodSeconds"`
	Threshold int `yaml:"failureThreshold"`
}

// ask waits until the probe's answer is 200.
func (p probe) ask() error {
	host := p.HTTPGet.Host
	if host == "" {
		host = "127.0.0.1" // with hostNetwork the node's address; the stand-in's node has this one
	}
	url := fmt.Sprintf("http://%s:%d%s", host, p.HTTPGet.Port, p.HTTPGet.Path)
	var err error
	for range 100 {
		var resp *http.Response
		if resp, err = http.Get(url); err == nil {
			_ = resp.Body.Close()
			if resp.StatusCode == http.StatusOK {
				return nil
			}
			err = fmt.Errorf("%s: %s", url, resp.Status)
		}
		time.Sleep(100 * time.Millisecond)
	}
	return err
}

// kubectl does what the recipe asks of kubectl. The node of its cluster is this machine.
func kubectl(args []string) error {
	line := strings.Join(args, " ")
	switch {
	case len(args) == 3 && strings.HasPrefix(line, "apply -f "):
		return applyManifests(args[2])
	case strings.HasPrefix(line, "-n millrace rollout status daemonset/gateway"):
		return probesOf("gateway")
	case line == "-n millrace rollout restart daemonset/gateway":
		if err := stopContainer("gateway"); err != nil {
			return err
		}
		return runPod()
	case strings.HasPrefix(line, "-n millrace exec daemonset/gateway -- "):
		return execIn("gateway", args[5:])
	case line == "-n millrace logs daemonset/gateway":
		return podman("logs", []string{"gateway"})
	}
	return errors.New("the stand-in has no " + line)
}

func manifestsOf(file string) (list []manifest, err error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	d := yaml.NewDecoder(bytes.NewReader(text))
	d.KnownFields(true)
	for {
		var m manifest
		if err := d.Decode(&m); err == io.EOF {
			return list, nil
		} else if err != nil {
			return nil, err
		}
		list = append(list, m)
	}
}

// configMaps is the folder with the files of ConfigMaps.
var configMaps = filepath.Join(standInState, "configmaps")

// applyManifests writes files of ConfigMaps, as a kubelet does within a minute, and starts a pod if there is none.
func applyManifests(file string) error {
	list, err := manifestsOf(file)
	if err != nil {
		return err
	}
	for _, m := range list {
		fmt.Printf("%s/%s configured\n", strings.ToLower(m.Kind), m.Metadata.Name)
		switch m.Kind {
		case "Namespace":
		case "ConfigMap":
			for name, text := range m.Data {
				path := filepath.Join(configMaps, m.Metadata.Name, name)
				if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o644)); err != nil {
					return err
				}
			}
		case "DaemonSet":
			text, err := yaml.Marshal(m.Spec.Template.Spec)
			if err != nil {
				return err
			}
			if err := os.WriteFile(filepath.Join(standInState, "pod.yaml"), text, 0o644); err != nil {
				return err
			}
			if _, err := os.Stat(containerFile("gateway")); err == nil {
				continue
			}
			if err := runPod(); err != nil {
				return err
			}
		default:
			return errors.New("the stand-in has no kind " + m.Kind)
		}
	}
	return nil
}

func storedPod() (p podSpec, err error) {
	text, err := os.ReadFile(filepath.Join(standInState, "pod.yaml"))
	if err != nil {
		return p, err
	}
	return p, yaml.Unmarshal(text, &p)
}

// runPod runs the one container of the pod, with its user, rights, files and command line.
func runPod() error {
	p, err := storedPod()
	if err != nil {
		return err
	}
	k := p.Containers[0]
	switch s := k.Security; {
	case !p.HostNetwork:
		return errors.New("the stand-in has only hostNetwork")
	case s.RunAsNonRoot == (s.RunAsUser == 0):
		return errors.New("runAsNonRoot and runAsUser contradict each other")
	case len(s.Capabilities.Drop) != 1 || s.Capabilities.Drop[0] != "ALL":
		return errors.New("capabilities.drop is not [ALL]")
	}
	c := container{User: k.Security.RunAsUser, Group: k.Security.RunAsGroup, Args: k.Args, ReadOnly: k.Security.ReadOnly, Init: p.ShareProcess}
	for _, e := range k.Env {
		c.Env = append(c.Env, e.Name+"="+e.Value)
	}
	for _, add := range k.Security.Capabilities.Add {
		c.Caps = append(c.Caps, strings.ToLower(add))
	}
	for _, m := range k.Mounts {
		for _, v := range p.Volumes {
			switch {
			case v.Name != m.Name:
			case v.EmptyDir != nil:
				c.Tmpfs = append(c.Tmpfs, m.Path)
			default:
				c.Volumes = append(c.Volumes, filepath.Join(configMaps, v.ConfigMap.Name)+":"+m.Path+":ro")
			}
		}
	}
	if err := c.fromImage(k.Image); err != nil {
		return err
	}
	return c.start("gateway", true)
}

// probesOf waits for the probes of the container.
func probesOf(string) error {
	p, err := storedPod()
	if err != nil {
		return err
	}
	if err := errors.Join(p.Containers[0].Liveness.ask(), p.Containers[0].Readiness.ask()); err != nil {
		_ = podman("logs", []string{"gateway"})
		return err
	}
	fmt.Println(`daemon set "gateway" successfully rolled out`)
	return nil
}
