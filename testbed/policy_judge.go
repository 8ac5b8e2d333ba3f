// Policy_judge answers what Kubernetes' own admission plugin says of changes of Nodes, without an API server.
//
// It reads lines of JSON from standard input: first a list of ValidatingAdmissionPolicies and their bindings, then one
// request a line. It answers each line with one: first with the plugin's release, then with the verdict. The plugin, its
// compiler of expressions and its informers are those of an API server; only the objects come from memory.
//
// Built by testbed/newer_kubernetes.py from Debian's packages of source; spoken to by testbed/policy_judge.py.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"

	admissionregistration "k8s.io/api/admissionregistration/v1"
	core "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	meta1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/plugin/policy/validating"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizerfactory"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/component-base/version"
)

const longestLine = 16 << 20

// Request is a change of a Node: who asks for it, and the Node as it is and as it would be.
type Request struct {
	User        string              `json:"user"`
	Extra       map[string][]string `json:"extra"`
	Name        string              `json:"name"`
	Subresource string              `json:"subresource"`
	Object      *core.Node          `json:"object"`
	OldObject   *core.Node          `json:"oldObject"`
}

// Verdict is what the plugin says of a request.
type Verdict struct {
	Allowed bool   `json:"allowed"`
	Code    int32  `json:"code,omitempty"`
	Reason  string `json:"reason,omitempty"`
	Message string `json:"message,omitempty"`
}

func main() {
	if err := serve(); err != nil {
		fmt.Fprintln(os.Stderr, "policy_judge:", err)
		os.Exit(1)
	}
}

func serve() error {
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, longestLine)
	answers := json.NewEncoder(os.Stdout)
	if !lines.Scan() {
		return errors.Join(errors.New("no policies were given"), lines.Err())
	}
	objects, err := policies(lines.Bytes())
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	plugin, err := newPlugin(ctx, objects)
	if err != nil {
		return err
	}
	if err := answers.Encode(map[string]string{"release": version.DefaultKubeBinaryVersion}); err != nil {
		return err
	}
	for lines.Scan() {
		var request Request
		if err := json.Unmarshal(lines.Bytes(), &request); err != nil {
			return err
		}
		if err := answers.Encode(judge(ctx, plugin, request)); err != nil {
			return err
		}
	}
	return lines.Err()
}

// policies reads manifests as an API server stores them: the fields that it fills in have their defaults.
func policies(line []byte) ([]runtime.Object, error) {
	var manifests []json.RawMessage
	if err := json.Unmarshal(line, &manifests); err != nil {
		return nil, err
	}
	objects := make([]runtime.Object, 0, len(manifests))
	for _, manifest := range manifests {
		object, _, err := scheme.Codecs.UniversalDeserializer().Decode(manifest, nil, nil)
		if err != nil {
			return nil, err
		}
		switch known := object.(type) {
		case *admissionregistration.ValidatingAdmissionPolicy:
			fillIn(known)
		case *admissionregistration.ValidatingAdmissionPolicyBinding:
		default:
			return nil, fmt.Errorf("%T is no policy", object)
		}
		objects = append(objects, object)
	}
	return objects, nil
}

// fillIn sets the defaults of a policy's constraints (the API's field documentation).
func fillIn(policy *admissionregistration.ValidatingAdmissionPolicy) {
	constraints := policy.Spec.MatchConstraints
	if constraints == nil {
		return
	}
	if constraints.NamespaceSelector == nil {
		constraints.NamespaceSelector = &meta1.LabelSelector{}
	}
	if constraints.ObjectSelector == nil {
		constraints.ObjectSelector = &meta1.LabelSelector{}
	}
	if constraints.MatchPolicy == nil {
		equivalent := admissionregistration.Equivalent
		constraints.MatchPolicy = &equivalent
	}
	for i := range constraints.ResourceRules {
		if rule := &constraints.ResourceRules[i]; rule.Scope == nil {
			all := admissionregistration.AllScopes
			rule.Scope = &all
		}
	}
}

func newPlugin(ctx context.Context, objects []runtime.Object) (*validating.Plugin, error) {
	plugin, err := validating.NewPlugin(nil)
	if err != nil {
		return nil, err
	}
	client := fake.NewClientset(objects...)
	factory := informers.NewSharedInformerFactory(client, 0)
	plugin.SetExternalKubeClientSet(client)
	plugin.SetExternalKubeInformerFactory(factory)
	plugin.SetDynamicClient(dynamicfake.NewSimpleDynamicClient(scheme.Scheme))
	plugin.SetRESTMapper(meta.NewDefaultRESTMapper(nil))
	plugin.SetAuthorizer(authorizerfactory.NewAlwaysDenyAuthorizer())
	plugin.SetDrainedNotification(ctx.Done())
	if err := plugin.ValidateInitialization(); err != nil {
		return nil, err
	}
	factory.Start(ctx.Done())
	if !plugin.WaitForReady() {
		return nil, errors.New("the plugin is not ready")
	}
	return plugin, nil
}

func judge(ctx context.Context, plugin *validating.Plugin, request Request) Verdict {
	err := plugin.Validate(ctx, attributes(request), admission.NewObjectInterfacesFromScheme(scheme.Scheme))
	if err == nil {
		return Verdict{Allowed: true}
	}
	var refused *apierrors.StatusError
	if !errors.As(err, &refused) {
		return Verdict{Message: err.Error()}
	}
	status := refused.Status()
	return Verdict{Code: status.Code, Reason: string(status.Reason), Message: status.Message}
}

func attributes(request Request) admission.Attributes {
	who := &user.DefaultInfo{Name: request.User, Extra: request.Extra}
	kind, resource := core.SchemeGroupVersion.WithKind("Node"), core.SchemeGroupVersion.WithResource("nodes")
	operation, options := admission.Create, runtime.Object(&meta1.CreateOptions{})
	var old runtime.Object
	if request.OldObject != nil {
		operation, options, old = admission.Update, &meta1.UpdateOptions{}, request.OldObject
		request.OldObject.SetGroupVersionKind(kind)
	}
	request.Object.SetGroupVersionKind(kind)
	return admission.NewAttributesRecord(
		request.Object, old, kind, "", request.Name, resource, request.Subresource, operation, options, false, who,
	)
}
