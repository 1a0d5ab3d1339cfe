"""Reports of builds and gates: JSON document, HTML page, JUnit XML, Markdown, MLflow."""
