package interop

import (
	"bytes"
	"encoding/json"
	"io"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
)

// TestManifestsOfTheRecipe decodes the manifests of docs/recipes/daemonset.md by Kubernetes' types, in which a key that they have not is
// an error, as kubectl has it, and checks what a server checks beyond the types.
func TestManifestsOfTheRecipe(t *testing.T) {
	page, err := os.ReadFile("../../../docs/recipes/daemonset.md")
	if err != nil {
		t.Fatal(err)
	}
	m := regexp.MustCompile("(?s)```yaml\n# millrace.yaml\n(.*?)```").FindSubmatch(page)
	if m == nil {
		t.Fatal("the page has no millrace.yaml")
	}
	var kinds []string
	for d := yaml.NewDecoder(bytes.NewReader(m[1])); ; {
		var v map[string]any
		if err := d.Decode(&v); err == io.EOF {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		kind := v["apiVersion"].(string) + " " + v["kind"].(string)
		kinds = append(kinds, kind)
		var space corev1.Namespace
		var config corev1.ConfigMap
		var daemons appsv1.DaemonSet
		to := map[string]any{"v1 Namespace": &space, "v1 ConfigMap": &config, "apps/v1 DaemonSet": &daemons}[kind]
		if to == nil {
			t.Fatalf("kind %s", kind)
		}
		text, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		strict := json.NewDecoder(bytes.NewReader(text))
		strict.DisallowUnknownFields()
		if err := strict.Decode(to); err != nil {
			t.Errorf("%s: %v", kind, err)
		}
		name, _ := v["metadata"].(map[string]any)["name"].(string)
		if wrong := validation.IsDNS1123Label(name); len(wrong) > 0 {
			t.Errorf("%s %s: %v", kind, name, wrong)
		}
		if kind == "apps/v1 DaemonSet" {
			checkDaemonSet(t, &daemons)
		}
	}
	if want := []string{"v1 Namespace", "v1 ConfigMap", "apps/v1 DaemonSet"}; !slices.Equal(kinds, want) {
		t.Errorf("kinds %v, want %v", kinds, want)
	}
}

// checkDaemonSet checks rules of the server that types do not express.
func checkDaemonSet(t *testing.T, d *appsv1.DaemonSet) {
	t.Helper()
	spec := d.Spec.Template.Spec
	for key, value := range d.Spec.Selector.MatchLabels {
		if d.Spec.Template.Labels[key] != value {
			t.Errorf("the selector's %s=%s is no label of pods", key, value)
		}
	}
	var volumes []string
	for _, v := range spec.Volumes {
		volumes = append(volumes, v.Name)
	}
	c := spec.Containers[0]
	for _, m := range c.VolumeMounts {
		if !slices.Contains(volumes, m.Name) || !strings.HasPrefix(m.MountPath, "/") {
			t.Errorf("mount %+v", m)
		}
	}
	for what, p := range map[string]*corev1.Probe{"readiness": c.ReadinessProbe, "liveness": c.LivenessProbe} {
		if p == nil || p.HTTPGet == nil || p.HTTPGet.Port.IntValue() == 0 {
			t.Errorf("%s: %+v", what, p)
		}
	}
	grace, before := *spec.TerminationGracePeriodSeconds, c.Lifecycle.PreStop.Sleep.Seconds
	if before <= 0 || before >= grace {
		t.Errorf("preStop takes %d s of %d", before, grace)
	}
	s := c.SecurityContext
	if !slices.Equal(s.Capabilities.Drop, []corev1.Capability{"ALL"}) || !*s.RunAsNonRoot || *s.RunAsUser == 0 {
		t.Errorf("securityContext %+v", s)
	}
	if limit := c.Resources.Limits.Memory(); limit.Value() < 900<<20 {
		t.Errorf("memory %v is less than GOMEMLIMIT", limit)
	}
	if !spec.HostNetwork || spec.DNSPolicy != corev1.DNSClusterFirstWithHostNet {
		t.Errorf("hostNetwork %v with dnsPolicy %s", spec.HostNetwork, spec.DNSPolicy)
	}
}
